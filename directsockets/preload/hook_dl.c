// SPDX-License-Identifier: Apache-2.0
//
// Exported: dlopen and dlsym, for who would find the C library's functions and not ours.
//
// dlopen: loaded with RTLD_DEEPBIND a library, and those that come with it, find functions first in each other
// and in what they name, the C library among it, and only then where others find ours.
// Calls of libpq in an extension of PHP would all go past us, and its connections stay on
// TCP. So where such a library has a function of the C library that we have too, or a stub
// that would look for it, it is given what it would have without the flag: ours, or that
// of another preloaded library before us. All are, or some calls would go to a lane and
// others past it. What it has of other libraries stays. Of its code only constructors
// have run by then.
//
// dlsym: who asks the C library itself, by a handle, for a function that we have too, is given
// ours (ctypes.CDLL("libc.so.6").recv), or it would wait for bytes that come by a lane. But not
// a library behind us that has the function as well, for that is the one that ours calls.
// Nothing is loaded by static programs, and the runtimes of sanitizers find their functions before ours can run.
#if !defined(EXTDS_STATIC) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#include "hook.h"

#include <dlfcn.h>
#include <link.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"

#if defined(__x86_64__)
enum { CALLED = R_X86_64_JUMP_SLOT, KEPT = R_X86_64_GLOB_DAT, STORED = R_X86_64_64 };
#elif defined(__aarch64__)
enum { CALLED = R_AARCH64_JUMP_SLOT, KEPT = R_AARCH64_GLOB_DAT, STORED = R_AARCH64_ABS64 };
#endif

// JUMPS is a function that ends in a jump to the one whose name it has, as what that finds depends on who calls.
#ifdef __clang__
#define JUMPS
#define JUMP __attribute__((musttail)) return
#else
#define JUMPS __attribute__((optimize("O2"), no_instrument_function))
#define JUMP return
#endif

// An object is a loaded library.
struct object {
	ElfW(Addr) first; // in: where the one that was loaded lies
	int skip;         // in: how many of those from it on are known
	char name[512];
	ElfW(Addr) base, from, to;   // all of it
	ElfW(Addr) sealed, unsealed; // what cannot be written once it is loaded
	const ElfW(Dyn) *dynamic;
};

static int next_object(struct dl_phdr_info *i, size_t n, void *p)
{
	(void)n;
	struct object *o = p;
	if (i->dlpi_addr == o->first)
		o->first = 0;
	if (o->first || o->skip-- > 0 || strlen(i->dlpi_name) >= sizeof o->name)
		return 0;
	strcpy(o->name, i->dlpi_name);
	o->base = i->dlpi_addr;
	o->from = UINTPTR_MAX;
	for (const ElfW(Phdr) *h = i->dlpi_phdr; h < i->dlpi_phdr + i->dlpi_phnum; h++) {
		ElfW(Addr) at = o->base + h->p_vaddr;
		if (h->p_type == PT_DYNAMIC)
			o->dynamic = (const ElfW(Dyn) *)at;
		if (h->p_type == PT_GNU_RELRO)
			o->sealed = at & -(ElfW(Addr))getpagesize(), o->unsealed = (at + h->p_memsz) & -(ElfW(Addr))getpagesize();
		if (h->p_type == PT_LOAD && at < o->from)
			o->from = at;
		if (h->p_type == PT_LOAD && at + h->p_memsz > o->to)
			o->to = at + h->p_memsz;
	}
	return 1;
}

// hooked is our function of a name, NULL if we have none.
static void *hooked(const char *name)
{
	static void *self; // stays open
	if (!self && !(self = real_dlopen(real_object((void *)(uintptr_t)hooked)->l_name, RTLD_NOW | RTLD_NOLOAD)))
		return NULL;
	void *f = real_dlsym(self, name);
	return f && real_beside(f, (void *)(uintptr_t)hooked) ? f : NULL;
}

static void give(const struct object *o, void **slot, void *f)
{
	uintptr_t n = (uintptr_t)getpagesize();
	void *page = (void *)((uintptr_t)slot & -n);
	bool sealed = (ElfW(Addr))slot >= o->sealed && (ElfW(Addr))slot < o->unsealed;
	if (sealed && mprotect(page, n, PROT_READ | PROT_WRITE) < 0)
		return;
	*slot = f;
	if (sealed)
		mprotect(page, n, PROT_READ);
}

// there is what an address of the dynamic section stands for. Where that section cannot be
// written, the linker has left it without the base.
static const void *there(const struct object *o, ElfW(Addr) address)
{
	return (const void *)(address < o->from ? o->base + address : address);
}

static void rebind(const struct object *o)
{
	ElfW(Addr) at[DT_NUM] = {0};
	for (const ElfW(Dyn) *d = o->dynamic; d && d->d_tag != DT_NULL; d++)
		if (d->d_tag > 0 && d->d_tag < DT_NUM)
			at[d->d_tag] = d->d_un.d_ptr;
	const ElfW(Sym) *symbols = there(o, at[DT_SYMTAB]);
	const char *names = there(o, at[DT_STRTAB]);
	const ElfW(Addr) tables[][2] = {{at[DT_JMPREL], at[DT_PLTRELSZ]}, {at[DT_RELA], at[DT_RELASZ]}};
	for (int t = 0; t < 2; t++) {
		const ElfW(Rela) *r = there(o, tables[t][0]);
		for (ElfW(Addr) n = tables[t][1] / sizeof *r; n > 0; n--, r++) {
			unsigned type = ELF64_R_TYPE(r->r_info);
			const ElfW(Sym) *s = symbols + ELF64_R_SYM(r->r_info);
			if ((type != CALLED && type != KEPT && (type != STORED || r->r_addend)) || s->st_shndx != SHN_UNDEF)
				continue;
			void **slot = (void **)(o->base + r->r_offset), *f = hooked(names + s->st_name);
			bool stub = type == CALLED && (ElfW(Addr))*slot >= o->from && (ElfW(Addr))*slot < o->to;
			if (f && (stub || real_of_c(*slot)))
				give(o, slot, real_dlsym(RTLD_DEFAULT, names + s->st_name));
		}
	}
}

JUMPS EXPORT void *dlopen(const char *file, int mode)
{
	if (!real_dlopen)
		real_loader();
	if (!(mode & RTLD_DEEPBIND) || !file || !strchr(file, '/') || strchr(file, '$'))
		JUMP real_dlopen(file, mode);
	HOOK();
	struct link_map *map;
	void *handle = real_dlopen(file, mode);
	if (!handle || config.off || dlinfo(handle, RTLD_DI_LINKMAP, &map) < 0)
		return handle;
	// Those that came with it are behind it, and perhaps some that another thread loads, or unloads.
	for (int known = 0;; known++) {
		struct object o = {.first = map->l_addr, .skip = known};
		if (!dl_iterate_phdr(next_object, &o))
			break;
		void *pin = real_dlopen(o.name, RTLD_NOW | RTLD_NOLOAD);
		struct link_map *same;
		if (pin && dlinfo(pin, RTLD_DI_LINKMAP, &same) == 0 && same->l_addr == o.base)
			rebind(&o);
		if (pin)
			dlclose(pin);
	}
	dlerror(); // what was not found is no news
	return handle;
}

// instead gives what somebody gets who has found f.
static void *instead(void *f, const char *name, void *caller)
{
	void *ours = hooked(name);
	if (ours && ours != f && !config.off && real_of_c(f) && !real_behind(caller, name))
		f = ours;
	dlerror(); // what we did not find is no news
	return f;
}

JUMPS EXPORT void *dlsym(void *handle, const char *name)
{
	if (!real_dlopen)
		real_loader();
	// Before we are ready another library begins, one that ours calls: hooked would begin us now.
	if (handle == RTLD_DEFAULT || handle == RTLD_NEXT || !process_ready())
		JUMP real_dlsym(handle, name);
	void *f = real_dlsym(handle, name);
	return f ? instead(f, name, __builtin_return_address(0)) : NULL;
}
#endif
