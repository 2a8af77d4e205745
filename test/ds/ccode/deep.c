// SPDX-License-Identifier: Apache-2.0
//
// deep.c is a program that is all in a library, PROGRAM, loaded with RTLD_DEEPBIND and the flags of FLAGS.
#include <dlfcn.h>
#include <stdio.h>

int main(int argc, char **argv)
{
	void *program = dlopen(PROGRAM, FLAGS | RTLD_DEEPBIND);
	int (*run)(int, char **) = program ? (int (*)(int, char **))dlsym(program, "main") : NULL;
	if (!run) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	return run(argc, argv);
}
