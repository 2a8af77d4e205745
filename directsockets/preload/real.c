// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/syscall.h>

struct real real;
int (*real_clock)(clockid_t, struct timespec *) = clock_gettime;

// In a static program (libextds.a) there is nothing to look up: what ld --wrap=read
// leaves of the C library's read is called __real_read.
#ifdef EXTDS_STATIC
#define F(ret, name, args) ret __real_##name args;
REAL_FUNCTIONS(F)
#undef F
#define RESOLVE(type, name) __real_##name
#else
#define RESOLVE(type, name) (type) real_dlsym(RTLD_NEXT, #name)
#endif

#ifdef EXTDS_STATIC
bool real_has(const void *address, const char *name) { return (void)address, (void)name, false; }
bool real_behind(const void *caller, const char *name) { return real_has(caller, name); }
#else
#if defined(__x86_64__)
#define FIRST_GLIBC "GLIBC_2.2.5"
#elif defined(__aarch64__)
#define FIRST_GLIBC "GLIBC_2.17"
#endif

void *(*real_dlopen)(const char *, int);
void *(*real_dlsym)(void *, const char *);
static bool others; // some of what we call is not the C library's
static struct span {
	uintptr_t from, to;
} libc, threads; // where its parts lie

void real_loader(void)
{
	real_dlsym = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", FIRST_GLIBC);
	real_dlopen = (void *(*)(const char *, int))real_dlsym(RTLD_NEXT, "dlopen");
}

bool real_beside(const void *f, const void *g)
{
	Dl_info a, b;
	return dladdr(f, &a) && dladdr(g, &b) && a.dli_fbase == b.dli_fbase;
}

static bool in(const struct span *s, const void *f) { return (uintptr_t)f >= s->from && (uintptr_t)f < s->to; }

bool real_of_c(const void *f) { return in(&libc, f) || in(&threads, f); }

static int find_c(struct dl_phdr_info *i, size_t n, void *p)
{
	struct span s = {UINTPTR_MAX, 0};
	(void)n, (void)p;
	for (const ElfW(Phdr) *h = i->dlpi_phdr; h < i->dlpi_phdr + i->dlpi_phnum; h++) {
		uintptr_t at = i->dlpi_addr + h->p_vaddr;
		if (h->p_type == PT_LOAD && at < s.from)
			s.from = at;
		if (h->p_type == PT_LOAD && at + h->p_memsz > s.to)
			s.to = at + h->p_memsz;
	}
	if (in(&s, (void *)(uintptr_t)gnu_get_libc_version))
		libc = s;
	if (in(&s, (void *)(uintptr_t)pthread_key_create))
		threads = s;
	return 0;
}

struct link_map *real_object(const void *address)
{
	Dl_info i;
	void *map;
	return dladdr1(address, &i, &map, RTLD_DL_LINKMAP) ? map : NULL;
}

bool real_has(const void *address, const char *name)
{
	struct link_map *its = real_object(address);
	void *object = its ? real_dlopen(its->l_name, RTLD_NOW | RTLD_NOLOAD) : NULL, *f = object ? real_dlsym(object, name) : NULL;
	bool has = f && real_beside(f, address);
	if (object)
		dlclose(object);
	if (!f)
		dlerror(); // it was not the program that asked
	return has;
}

bool real_behind(const void *caller, const char *name)
{
	if (!others)
		return false;
	struct link_map *its = real_object(caller);
	for (struct link_map *m = real_object((void *)(uintptr_t)real_behind); m; m = m->l_prev)
		if (m == its)
			return false;
	return real_has(caller, name);
}

static int ask_kernel(clockid_t clock, struct timespec *t) { return (int)real.syscall(SYS_clock_gettime, clock, t); }
#endif

void real_init(void)
{
	// Each store is the same for whoever resolves it, so that a race at start-up is harmless.
#ifndef EXTDS_STATIC
	real_loader();
	dl_iterate_phdr(find_c, NULL);
#endif
#define F(ret, name, args) real.name = RESOLVE(ret(*) args, name);
	REAL_FUNCTIONS(F)
#undef F
#ifndef EXTDS_STATIC
	if (!real_of_c((void *)(uintptr_t)clock_gettime))
		real_clock = ask_kernel;
#define F(ret, name, args) others |= real.name && !real_of_c((void *)(uintptr_t)real.name);
	REAL_FUNCTIONS(F)
#undef F
#endif
}
