// SPDX-License-Identifier: Apache-2.0
//
// What the files with exported functions (hook_*.c) need.
#ifndef HOOK_H
#define HOOK_H

#include "real.h"

#include <errno.h>

#include "conn.h"
#include "process.h"

#define EXPORT __attribute__((visibility("default")))

// ALSO exports a function by the other name that glibc has for it.
#if __has_attribute(copy) // of nothrow and the like, which gcc wants
#define LIKE(of) copy(of),
#else
#define LIKE(of)
#endif
#define ALSO(name, of) extern __typeof__(of) name __attribute__((LIKE(of) alias(#of), visibility("default")))

// ABSENT marks what the C library may not have. What only programs of glibc call ends in a
// jump to nowhere with musl, as their call of it would.
#ifdef EXTDS_STATIC
#define ABSENT
#else
#define ABSENT __attribute__((weak))
#endif
void __chk_fail(void) __attribute__((noreturn)) ABSENT;

// Each hook starts with HOOK: the library may be called before its own
// constructor ran, and in a child that a raw clone made.
#define HOOK() \
	do { \
		if (__builtin_expect(!process_ready(), 0)) \
			process_begin(); \
	} while (0)

// hook_leave takes the connection of a descriptor, if it is one, back to TCP,
// since calls that we do not see are about to use it.
static inline void hook_leave(int fd, enum reason why)
{
	struct conn *c = conn_get(fd);
	if (!c)
		return;
	int saved = errno;
	conn_stay(c, fd, why);
	conn_put(c);
	errno = saved;
}

#endif
