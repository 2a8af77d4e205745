// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
#include <link.h>
#include <sys/syscall.h>

#include "symbol.h"

struct real real;
int (*real_clock)(clockid_t, struct timespec *) = clock_gettime;

// In a static program (libextds.a) there is nothing to look up: what ld --wrap=read
// leaves of the C library's read is called __real_read.
#ifdef EXTDS_STATIC
#define F(ret, name, args) ret __real_##name args;
REAL_FUNCTIONS(F)
#undef F
#endif

void real_mutex(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
}

#ifdef EXTDS_STATIC
void real_atfork(void (*before)(void), void (*after)(void)) { pthread_atfork(before, after, NULL); }
bool real_complete(void) { return true; }
bool real_has(const void *address, const char *name) { return (void)address, (void)name, false; }
bool real_behind(const void *caller, const char *name) { return real_has(caller, name); }
#else
#pragma weak gnu_get_libc_version
int __register_atfork(void (*)(void), void (*)(void), void (*)(void), void *) __attribute__((weak)); // glibc's pthread_atfork is in each library
extern void *__dso_handle __attribute__((visibility("hidden")));

static const char never;
const char *real_single = &never;
bool real_musl;
void *(*real_dlopen)(const char *, int);
void *(*real_dlsym)(void *, const char *);
static bool others; // some of what we call is not the C library's
static struct span {
	uintptr_t from, to;
} libc, threads; // where its parts lie

void real_atfork(void (*before)(void), void (*after)(void))
{
	int (*atfork)(void (*)(void), void (*)(void), void (*)(void));
	if (__register_atfork)
		__register_atfork(before, after, NULL, &__dso_handle);
	else if ((atfork = (__typeof__(atfork))real_dlsym(RTLD_NEXT, "pthread_atfork")))
		atfork(before, after, NULL);
}

bool real_complete(void) { return pthread_once && dladdr; } // each is in one of the two

void real_loader(void)
{
	static const struct symbol loader[] = {{"dlopen", (void **)&real_dlopen}, {"dlsym", (void **)&real_dlsym}};
	symbol_find(loader, 2, true);
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
	if (dladdr1)
		return dladdr1(address, &i, &map, RTLD_DL_LINKMAP) ? map : NULL;
	struct link_map *m = NULL;
	if (dladdr(address, &i))
		dlinfo(real_dlopen(NULL, RTLD_NOW), RTLD_DI_LINKMAP, &m);
	while (m && m->l_name != i.dli_fname) // the same string
		m = m->l_next;
	return m;
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

// What musl does not have, or not in all its versions.
static int own_close_range(unsigned from, unsigned to, int flags) { return (int)real.syscall(SYS_close_range, from, to, flags); }
static int own_execveat(int dir, const char *path, char *const *argv, char *const *env, int flags)
{
	return (int)real.syscall(SYS_execveat, dir, path, argv, env, flags);
}
static ssize_t own_preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	return real.syscall(SYS_preadv2, fd, iov, n, at, 0L, flags);
}
static ssize_t own_pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	return real.syscall(SYS_pwritev2, fd, iov, n, at, 0L, flags);
}

static int ask_kernel(clockid_t clock, struct timespec *t) { return (int)real.syscall(SYS_clock_gettime, clock, t); }
#endif

void real_init(void)
{
#ifdef EXTDS_STATIC
#define F(ret, name, args) real.name = __real_##name;
	REAL_FUNCTIONS(F)
#undef F
#else
	// Each store is the same for whoever resolves it, so that a race at start-up is harmless.
	static const struct symbol all[] = {
#define F(ret, name, args) {#name, (void **)&real.name},
		REAL_FUNCTIONS(F)
#undef F
	};
	_Static_assert(sizeof all / sizeof *all <= SYMBOLS_MAX, "symbol_find");
	static const struct symbol single = {"__libc_single_threaded", (void **)&real_single};
	real_musl = !gnu_get_libc_version;
	real_loader();
	dl_iterate_phdr(find_c, NULL);
	symbol_find(all, sizeof all / sizeof *all, true);
	symbol_find(&single, 1, false);
	if (!real.close_range)
		real.close_range = own_close_range;
	if (!real.execveat)
		real.execveat = own_execveat;
	if (!real.preadv2)
		real.preadv2 = own_preadv2;
	if (!real.pwritev2)
		real.pwritev2 = own_pwritev2;
	if (!real_of_c((void *)(uintptr_t)clock_gettime))
		real_clock = ask_kernel;
#define F(ret, name, args) others |= real.name && !real_of_c((void *)(uintptr_t)real.name);
	REAL_FUNCTIONS(F)
#undef F
#endif
}
