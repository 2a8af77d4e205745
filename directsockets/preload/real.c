// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include <dlfcn.h>

struct real real;

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

void real_init(void)
{
	// Each store is the same pointer for whoever resolves it, so that a race
	// at start-up is harmless.
#define F(ret, name, args) real.name = RESOLVE(ret(*) args, name);
	REAL_FUNCTIONS(F)
#undef F
}
