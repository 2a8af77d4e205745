// SPDX-License-Identifier: Apache-2.0
//
// Functions by their names, from the tables that the loader works with itself. Not by dlsym, for
// that one must be found, too, where ours has its name; and before glibc 2.34 it allocates: the allocator of
// the program, which may be the first to call us, with its lock held.
#ifndef SYMBOL_H
#define SYMBOL_H

#include <stdbool.h>

enum { SYMBOLS_MAX = 256 }; // at a time

struct symbol {
	const char *name;
	void **to;
};

// symbol_find stores the address of each symbol in the first loaded object that has it, of all
// or of those behind this library, as dlsym would with RTLD_DEFAULT and RTLD_NEXT; what none has
// stays as it is. None may be an IFUNC.
void symbol_find(const struct symbol *all, int n, bool behind);

#endif
