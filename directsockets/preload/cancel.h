// SPDX-License-Identifier: Apache-2.0
//
// CANCELLED(f, call) makes a call, and f(NULL) should the thread be cancelled in it, or end.
// pthread_cleanup_push does the same, but each C library has its own macro of that name;
// these functions are behind that of musl and of older programs of glibc, and in both. They keep a
// list of the thread's notes. Who leaves the call by longjmp takes them off (cancel_left), for musl
// does not, and would follow the list when the thread ends. Who leaves it just as that begins or ends has
// glibc take it off; what is not on the list must not be taken off.
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

extern __thread struct cancel *cancel_outermost __attribute__((tls_model("initial-exec")));

#define CANCELLED(f, call) \
	do { \
		struct cancel note, *outermost = cancel_outermost; \
		_pthread_cleanup_push(&note, f, NULL); \
		if (!outermost) \
			cancel_outermost = &note; \
		call; \
		cancel_outermost = outermost; \
		_pthread_cleanup_pop(&note, 0); \
	} while (0)

static inline void cancel_left(void)
{
	if (cancel_outermost)
		_pthread_cleanup_pop(cancel_outermost, 0); // the list is what it was before this one
	cancel_outermost = NULL;
}

#endif
