// SPDX-License-Identifier: Apache-2.0
#ifndef EXTDS_STATIC
#include "real.h"

#include "symbol.h"

#include <link.h>
#include <string.h>

enum { BITS = 64, HIDDEN = 0x8000 }; // HIDDEN: a version for old programs only

struct search {
	const struct symbol *all;
	int n;
	uint32_t hash[SYMBOLS_MAX];
	bool found[SYMBOLS_MAX];
	bool here; // this object and those behind it
};

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
		if ((its | 1) == (h | 1) && symbol->st_shndx != SHN_UNDEF && strcmp(t->names + symbol->st_name, name) == 0 &&
		    !(t->versions && t->versions[s] & HIDDEN))
			return symbol;
		if (its & 1)
			return NULL; // the last of the bucket
	}
}

static int search(struct dl_phdr_info *i, size_t size, void *p)
{
	struct search *f = p;
	const ElfW(Dyn) *d = NULL;
	ElfW(Addr) from = UINTPTR_MAX, me = (ElfW(Addr))search;
	bool ours = false;
	(void)size;
	for (const ElfW(Phdr) *h = i->dlpi_phdr; h < i->dlpi_phdr + i->dlpi_phnum; h++) {
		ElfW(Addr) at = i->dlpi_addr + h->p_vaddr;
		if (h->p_type == PT_DYNAMIC)
			d = (const ElfW(Dyn) *)at;
		if (h->p_type == PT_LOAD && at < from)
			from = at;
		ours |= h->p_type == PT_LOAD && me >= at && me < at + h->p_memsz;
	}
	if (!f->here) {
		f->here = ours; // those that come now
		return 0;
	}
	struct table t = {0};
	for (; d && d->d_tag != DT_NULL; d++) {
		// Some loaders, and the kernel's object, leave the section as it is in the file.
		const void *at = (const void *)(d->d_un.d_ptr < from ? i->dlpi_addr + d->d_un.d_ptr : d->d_un.d_ptr);
		if (d->d_tag == DT_GNU_HASH)
			t.head = at;
		else if (d->d_tag == DT_SYMTAB)
			t.symbols = at;
		else if (d->d_tag == DT_STRTAB)
			t.names = at;
		else if (d->d_tag == DT_VERSYM)
			t.versions = at;
	}
	if (!t.head || !t.symbols || !t.names || !t.head[0] || !t.head[2])
		return 0;
	for (int k = 0; k < f->n; k++) {
		const ElfW(Sym) *s = f->found[k] ? NULL : find(&t, f->hash[k], f->all[k].name);
		if (!s)
			continue;
		*f->all[k].to = (void *)(i->dlpi_addr + s->st_value);
		f->found[k] = true;
	}
	return 0;
}

void symbol_find(const struct symbol *all, int n, bool behind)
{
	struct search f = {.all = all, .n = n, .here = !behind};
	for (int k = 0; k < n; k++)
		f.hash[k] = hash_of(all[k].name);
	dl_iterate_phdr(search, &f);
}
#endif
