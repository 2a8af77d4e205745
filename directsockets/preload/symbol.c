// SPDX-License-Identifier: Apache-2.0
//
// Nothing is called here: a sanitizer's library has taken over dl_iterate_phdr and strcmp, and asks us for
// the ones behind them before it is ready. The list of objects is read without the loader's lock, as they begin.
#ifndef EXTDS_STATIC
#include "real.h"

#include "symbol.h"

#include <link.h>

enum { BITS = 64, HIDDEN = 0x8000 }; // HIDDEN: a version for old programs only

// What debuggers read: glibc's loader has the structure, musl's the address of one like it.
#pragma weak _r_debug
extern struct r_debug *_dl_debug_addr __attribute__((weak));

// A table of hashes, and what belongs to it.
struct table {
	const uint32_t *head; // buckets, first symbol, words of the filter, its shift
	const ElfW(Sym) *symbols;
	const char *names;
	const ElfW(Versym) *versions;
};

static uint32_t hash_of(const char *name)
{
	uint32_t h = 5381;
	for (; *name; name++)
		h = h * 33 + (unsigned char)*name;
	return h;
}

static bool same(const char *a, const char *b)
{
	for (; *a && *a == *b; a++, b++)
		;
	return *a == *b;
}

static const ElfW(Sym) *find(const struct table *t, uint32_t h, const char *name)
{
	uint32_t buckets = t->head[0], first = t->head[1], words = t->head[2], shift = t->head[3];
	const uint64_t *filter = (const uint64_t *)(t->head + 4);
	const uint32_t *bucket = (const uint32_t *)(filter + words), *chain = bucket + buckets;
	uint64_t word = filter[h / BITS % words];
	if (!(word >> h % BITS & word >> (h >> shift) % BITS & 1) || bucket[h % buckets] < first)
		return NULL;
	for (uint32_t s = bucket[h % buckets];; s++) {
		uint32_t its = chain[s - first];
		const ElfW(Sym) *symbol = &t->symbols[s];
		if ((its | 1) == (h | 1) && symbol->st_shndx != SHN_UNDEF && same(t->names + symbol->st_name, name) &&
		    !(t->versions && t->versions[s] & HIDDEN))
			return symbol;
		if (its & 1)
			return NULL; // the last of the bucket
	}
}

// table_of is an object's, without a head if it has none.
static struct table table_of(const struct link_map *m)
{
	struct table t = {0};
	for (const ElfW(Dyn) *d = m->l_ld; d && d->d_tag != DT_NULL; d++) {
		// musl, and the kernel's object, leave the section as it is in the file.
		const void *at = (const void *)(d->d_un.d_ptr < m->l_addr ? m->l_addr + d->d_un.d_ptr : d->d_un.d_ptr);
		if (d->d_tag == DT_GNU_HASH)
			t.head = at;
		else if (d->d_tag == DT_SYMTAB)
			t.symbols = at;
		else if (d->d_tag == DT_STRTAB)
			t.names = at;
		else if (d->d_tag == DT_VERSYM)
			t.versions = at;
	}
	if (!t.symbols || !t.names || (t.head && (!t.head[0] || !t.head[2])))
		t.head = NULL;
	return t;
}

void symbol_find(const struct symbol *all, int n, bool behind)
{
	uint32_t hash[SYMBOLS_MAX];
	uint64_t found[SYMBOLS_MAX / BITS];
	for (int k = 0; k < SYMBOLS_MAX / BITS; k++)
		found[k] = 0;
	for (int k = 0; k < n; k++)
		hash[k] = hash_of(all[k].name);
	bool here = !behind;
	for (const struct link_map *m = (&_r_debug ? &_r_debug : _dl_debug_addr)->r_map; m; m = m->l_next) {
		struct table t = table_of(m);
		for (int k = 0; here && t.head && k < n; k++) {
			uint64_t bit = UINT64_C(1) << k % BITS;
			const ElfW(Sym) *s = found[k / BITS] & bit ? NULL : find(&t, hash[k], all[k].name);
			if (!s)
				continue;
			*all[k].to = (void *)(m->l_addr + s->st_value);
			found[k / BITS] |= bit;
		}
		here |= m->l_ld == _DYNAMIC; // ours
	}
}
#endif
