// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Between processes the lock is a robust, error-checking, process-shared mutex, which costs
// two locked instructions and some sixty more. A connection that only this process
// has ever held needs none of that: its lock is the number of the thread that has it, taken
// by one locked instruction, or by none where there is one thread, and given back by a
// store. Who finds it taken does not sleep until it is told, since nobody holds it for
// long: it waits a little, and now and then asks whether that thread still lives.
//
// A fork by another thread ends that, so the two ways meet:
//
//	owner := me           (1)          sole := false           (2)
//	fence                              fork
//	sole? it is mine                   take m
//	owner := 0, take m                 wait until owner is 0
//
// (1) and (2) are sequentially consistent, so one of both sees the other. The model is
// test/memmodel/channel (lock).
#include "real.h"

#include "lock.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>

#include "clock.h"
#include "process.h"
#include "single.h"

// How many locks this thread has, or waits for. Handlers of the program run afterwards, as they do after
// a system call: such a signal is blocked, and sent again. Those cannot that tell of a fault, and who
// handles one may want another lock, out of order, or fork, and wait for the child. Neither it nor the
// child waits for a lock without end: patience is how many naps are left to them for this one, less
// than 0 for all others.
static __thread unsigned held __attribute__((tls_model("initial-exec")));
static __thread unsigned forks __attribute__((tls_model("initial-exec"))); // of these, for one
static __thread int patience __attribute__((tls_model("initial-exec"))) = -1;
enum { PATIENCE = 1000 };
static __thread uint64_t deferred __attribute__((tls_model("initial-exec"))); // of each signal a bit

static __thread uint32_t tid __attribute__((tls_model("initial-exec")));
const _Atomic bool lock_own = true;

// me is this thread. The kernel is asked once for each, and not at all while there is but one.
static uint32_t me(void)
{
	if (single_thread())
		return process_id();
	return tid ? tid : (tid = (uint32_t)real_gettid());
}

static sigset_t only(int signo)
{
	sigset_t s;
	sigemptyset(&s);
	sigaddset(&s, signo);
	return s;
}

bool lock_defers(int signo, const siginfo_t *info, ucontext_t *interrupted)
{
#ifdef __SANITIZE_THREAD__ // which would run it again and again, before whatever may wait
	return false;
#endif
	if (held == 0 || signo == SIGSEGV || signo == SIGBUS || signo == SIGILL || signo == SIGFPE || signo == SIGTRAP || signo == SIGSYS ||
	    signo == SIGABRT)
		return false;
	int saved = errno;
	sigset_t this = only(signo);
	real.pthread_sigmask(SIG_BLOCK, &this, NULL); // SA_NODEFER
	long r = info ? real.syscall(SYS_rt_tgsigqueueinfo, process_id(), real_gettid(), signo, info)
		      : real.syscall(SYS_tgkill, process_id(), real_gettid(), signo);
	if (r == 0) {
		sigaddset(&interrupted->uc_sigmask, signo);
		deferred |= 1ull << (signo - 1);
	}
	errno = saved;
	return r == 0;
}

// deliver runs the handlers that had to wait.
static void deliver(void)
{
	int saved = errno;
	while (deferred) {
		sigset_t this = only(__builtin_ctzll(deferred) + 1);
		deferred &= deferred - 1;
		real.pthread_sigmask(SIG_UNBLOCK, &this, NULL);
	}
	errno = saved;
}

void lock_forks(unsigned n) { forks = n; }

void lock_child(void)
{
	tid = 0;
	patience = held > forks || patience >= 0 ? PATIENCE : -1;
	held = forks = 0;
	deliver(); // they are the parent's, but blocked here, too
}

int lock_interrupt(void)
{
	int was = patience;
	if (held > 0)
		patience = PATIENCE;
	return was;
}

void lock_resume(int was) { patience = was; }

void lock_left(void)
{
	held = 0;
	patience = -1;
	deliver();
}

// in_vain: who has the lock has been waited for long enough.
static bool in_vain(void)
{
	if (patience > 0) {
		patience--;
		clock_nap();
	}
	return patience == 0;
}

void lock_init(struct lock *l)
{
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_settype(&a, PTHREAD_MUTEX_ERRORCHECK);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&l->m, &a);
	pthread_mutexattr_destroy(&a);
	atomic_init(&l->owner, 0);
	l->by_m = false;
}

// claim makes thread `to` the owner instead of `from`, 0 for nobody, or says who it is.
static bool claim(struct lock *l, uint32_t *from, uint32_t to)
{
	if (!single_thread())
		return atomic_compare_exchange_strong(&l->owner, from, to);
	uint32_t is = atomic_load_explicit(&l->owner, memory_order_relaxed);
	if (is != *from) {
		*from = is;
		return false;
	}
	atomic_store_explicit(&l->owner, to, memory_order_relaxed);
	atomic_signal_fence(memory_order_seq_cst);
	return true;
}

static void release(struct lock *l)
{
	atomic_signal_fence(memory_order_seq_cst);
	atomic_store_explicit(&l->owner, 0, memory_order_release);
}

// gone waits a little for a thread, after n times before. True: it has ended.
static bool gone(uint32_t thread, unsigned n)
{
	enum { PAUSES = 100, YIELDS = 110, ASK = 64 };
	bool is = false;
	int saved = errno;
	if (n < PAUSES)
		clock_pause();
	else if (n < YIELDS)
		sched_yield();
	else
		clock_nap();
	if (n >= YIELDS && n % ASK == 0)
		is = real.syscall(SYS_tkill, (pid_t)thread, 0) < 0 && errno == ESRCH;
	errno = saved;
	return is;
}

// mine: a signal handler asks that has interrupted us, who have it. It must not wait for the mutex:
// who has that may be waiting for us.
static bool mine(struct lock *l)
{
	uint32_t is = atomic_load_explicit(&l->owner, memory_order_relaxed);
	return is && is == me();
}

static void unheld(void)
{
	held -= held > 0; // a jump, or the fork of a handler, has forgotten it
	atomic_signal_fence(memory_order_seq_cst);
	if (__builtin_expect(deferred != 0, 0) && held == 0)
		deliver();
}

static enum lock_result by_mutex(struct lock *l, bool wait)
{
	if (mine(l))
		return LOCK_REFUSED;
	int e;
	do
		e = wait && patience < 0 ? pthread_mutex_lock(&l->m) : pthread_mutex_trylock(&l->m);
	while (e == EBUSY && wait && !in_vain());
	enum lock_result r = e ? LOCK_ORPHAN : LOCK_OK;
	if (e == EOWNERDEAD)
		pthread_mutex_consistent(&l->m);
	else if (e)
		return LOCK_REFUSED;
	uint32_t is;
	for (unsigned n = 0; (is = atomic_load(&l->owner)) != 0; n++) {
		if (!wait || in_vain()) {
			pthread_mutex_unlock(&l->m);
			return LOCK_REFUSED;
		}
		if (gone(is, n) && atomic_compare_exchange_strong(&l->owner, &is, 0))
			r = LOCK_ORPHAN;
	}
	l->by_m = true;
	return r;
}

static enum lock_result take(struct lock *l, const _Atomic bool *sole)
{
	uint32_t from = 0; // the owner to follow: nobody, or who has ended
	bool orphan = false;
	for (unsigned n = 0; sole && atomic_load_explicit(sole, memory_order_relaxed); n++) {
		if (claim(l, &from, me())) {
			orphan = from != 0;
			if (atomic_load(sole))
				return orphan ? LOCK_ORPHAN : LOCK_OK;
			release(l);
			break;
		}
		if (from == me())
			return LOCK_REFUSED;
		if (from && !gone(from, n)) {
			if (in_vain())
				return LOCK_REFUSED;
			from = 0;
		}
	}
	enum lock_result r = by_mutex(l, true);
	return r == LOCK_OK && orphan ? LOCK_ORPHAN : r;
}

enum lock_result lock_take(struct lock *l, const _Atomic bool *sole)
{
	held++;
	atomic_signal_fence(memory_order_seq_cst);
	enum lock_result r = take(l, sole);
	if (__builtin_expect(patience >= 0, 0))
		patience = PATIENCE; // for the next one
	if (r == LOCK_REFUSED)
		unheld();
	return r;
}

static bool try(struct lock *l, const _Atomic bool *sole)
{
	if (sole && atomic_load_explicit(sole, memory_order_relaxed)) {
		uint32_t nobody = 0;
		if (!claim(l, &nobody, me()))
			return false;
		if (atomic_load(sole))
			return true;
		release(l);
	}
	return by_mutex(l, false) != LOCK_REFUSED;
}

bool lock_try(struct lock *l, const _Atomic bool *sole)
{
	held++;
	atomic_signal_fence(memory_order_seq_cst);
	bool got = try(l, sole);
	if (!got)
		unheld();
	return got;
}

void lock_give(struct lock *l)
{
	if (l->by_m) {
		l->by_m = false;
		pthread_mutex_unlock(&l->m);
	} else {
		release(l);
	}
	atomic_signal_fence(memory_order_seq_cst);
	unheld();
}
