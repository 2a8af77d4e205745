// SPDX-License-Identifier: Apache-2.0
//
// The lock of a connection, in family memory, or of an epoll set and others, which are a process' own.
// The former is robust: when its holder dies, the next one gets it and is told. It is never held across a
// blocking call, and handlers of signals run when this thread has none. Who handles a fault, or has SA_RESETHAND,
// runs at once, and is refused the lock whose holder it has interrupted, and others after a while.
//
// While *sole no other process can have it, and it costs less. That may become
// false at any time, and becomes true only while nobody can have the lock.
#ifndef LOCK_H
#define LOCK_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <ucontext.h>

struct lock {
	pthread_mutex_t m;
	_Atomic uint32_t owner; // the thread that has it without m, or tries; 0: none
	bool by_m;              // who has it has m
};
extern const _Atomic bool lock_own; // what `sole` is for a lock that is this process' own
enum lock_result { LOCK_OK, LOCK_ORPHAN, LOCK_REFUSED };
void lock_init(struct lock *l);
enum lock_result lock_take(struct lock *l, const _Atomic bool *sole); // NULL: it is not
bool lock_try(struct lock *l, const _Atomic bool *sole);              // an orphan counts as taken
void lock_give(struct lock *l);

// lock_forks: so many locks are held for a fork. lock_child is in the child, where nobody has any.
void lock_forks(unsigned n);
void lock_child(void);

// lock_defers: a handler is to run later, since this thread has a lock. info: NULL if it does not ask for it.
bool lock_defers(int signo, const siginfo_t *info, ucontext_t *interrupted);

// lock_interrupt begins a handler on this thread, and lock_resume ends it, with what that gave.
int lock_interrupt(void);
void lock_resume(int was);
void lock_left(void); // it, or whatever it interrupted, is left by longjmp

#endif
