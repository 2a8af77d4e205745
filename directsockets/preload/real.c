// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include <dlfcn.h>
#include <gnu/libc-version.h>
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
#define RESOLVE(type, name) (type) dlsym(RTLD_NEXT, #name)
#endif

#ifndef EXTDS_STATIC
bool real_beside(void *f, void *g)
{
	Dl_info a, b;
	return dladdr(f, &a) && dladdr(g, &b) && a.dli_fbase == b.dli_fbase;
}

bool real_of_c(void *f)
{
	return real_beside(f, (void *)(uintptr_t)gnu_get_libc_version) || real_beside(f, (void *)(uintptr_t)pthread_key_create);
}

static int ask_kernel(clockid_t clock, struct timespec *t) { return (int)real.syscall(SYS_clock_gettime, clock, t); }
#endif

void real_init(void)
{
	// Each store is the same pointer for whoever resolves it, so that a race
	// at start-up is harmless.
#define F(ret, name, args) real.name = RESOLVE(ret(*) args, name);
	REAL_FUNCTIONS(F)
#undef F
#ifndef EXTDS_STATIC
	if (!real_of_c((void *)(uintptr_t)clock_gettime))
		real_clock = ask_kernel;
#endif
}
