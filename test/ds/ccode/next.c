// next: says what the library takes for the C library's functions that is not what dlsym finds.
#include "real.h"

#include <dlfcn.h>

int main(void)
{
	int n = 0;
#define F(ret, name, args) \
	if (n++, (void *)(uintptr_t)real.name != real_dlsym(RTLD_NEXT, #name)) \
		printf("%s is %p\n", #name, (void *)(uintptr_t)real.name);
	REAL_FUNCTIONS(F)
#undef F
	printf("%d functions\n", n);
	return 0;
}
