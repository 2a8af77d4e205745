// SPDX-License-Identifier: Apache-2.0
//
// slowwake.c goes into a library that is built with slowwake.h: whoever it wakes, by a doorbell, a
// signal or a mutex, is woken 0.4 ms late, and each of its yields takes up to 2 ms. On a virtual
// machine whose CPUs are far apart, or where other programs compute, that is how it is always.
#include "slowwake.h"
#undef sched_yield // here they are the C library's
#undef sigqueue
#undef pthread_mutex_unlock

#include <errno.h>
#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "real.h" // syscall is the library's

enum { WAKE_NS = 400000, MOST_YIELD_NS = 2000000 };

// In a handler and in a thread that may be cancelled, too: the system call itself.
static void wait_for(long ns)
{
	int saved = errno;
	struct timespec t = {0, ns};
	real.syscall(SYS_nanosleep, &t, NULL);
	errno = saved;
}

void slow_wake(void) { wait_for(WAKE_NS); }

int slow_yield(void)
{
	static __thread uint64_t x __attribute__((tls_model("initial-exec")));
	struct timespec t;
	if (!x) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		x = ((uint64_t)t.tv_nsec * 2654435761u ^ (uintptr_t)&x) | 1;
	}
	x ^= x << 13; // xorshift
	x ^= x >> 7;
	x ^= x << 17;
	wait_for((long)((x >> 32) % MOST_YIELD_NS));
	return sched_yield();
}

int slow_sigqueue(pid_t pid, int signo, const union sigval value)
{
	wait_for(WAKE_NS);
	return sigqueue(pid, signo, value);
}

int slow_unlock(pthread_mutex_t *m)
{
#ifdef __GLIBC__
	const unsigned somebody_waits = 0x80000000; // FUTEX_WAITERS of a robust mutex
	if ((unsigned)__atomic_load_n(&m->__data.__lock, __ATOMIC_RELAXED) & somebody_waits)
		wait_for(WAKE_NS);
#endif
	return pthread_mutex_unlock(m);
}
