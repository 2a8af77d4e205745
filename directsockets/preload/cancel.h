// SPDX-License-Identifier: Apache-2.0
//
// CANCELLED(f, call) makes a call, and f(NULL) should the thread be cancelled in it, or end.
// pthread_cleanup_push does the same, but each C library has its own macro of that name;
// these functions are behind that of musl and of older programs of glibc, and in both.
#ifndef CANCEL_H
#define CANCEL_H

#include <stddef.h>

struct cancel { // glibc's, the larger one
	void (*f)(void *);
	void *arg;
	int type;
	void *outer;
};
void _pthread_cleanup_push(struct cancel *, void (*)(void *), void *);
void _pthread_cleanup_pop(struct cancel *, int run);

#define CANCELLED(f, call) \
	do { \
		struct cancel note; \
		_pthread_cleanup_push(&note, f, NULL); \
		call; \
		_pthread_cleanup_pop(&note, 0); \
	} while (0)

#endif
