// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include <dlfcn.h>

struct real real;

void real_init(void)
{
	// Each store is the same pointer for whoever resolves it, so that a race
	// at start-up is harmless.
#define F(ret, name, args) real.name = (ret(*) args)dlsym(RTLD_NEXT, #name);
	REAL_FUNCTIONS(F)
#undef F
}
