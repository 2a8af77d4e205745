// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that sleep without a descriptor. The kernel restarts none of them after a handler,
// and the one by which peers interrupt us (engage.c) is none of the program's. So what is left of the
// time is slept after it, with all signals blocked but while asleep: none of the program's is missed.
// Where that cannot be, in waits for semaphores and the like, one that comes in the moment between is
// as if it had come before the call.
#include "hook.h"

#include <dlfcn.h>
#include <errno.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/sem.h>
#include <threads.h>
#include <time.h>

#include "config.h"
#include "files.h"
#include "sleep.h"

enum { SECOND = 1000000000 };

// undisturbed: nobody can interrupt us.
static bool undisturbed(void) { return config.off || files_top() == 0; }

static void block(sigset_t *old)
{
	sigset_t all;
	sigfillset(&all);
	real.pthread_sigmask(SIG_SETMASK, &all, old);
}

// ns_of is at most a century: who sleeps for ever says so by the largest number.
static int64_t ns_of(const struct timespec *t)
{
	const int64_t most = 3200000000;
	return (t->tv_sec < most ? t->tv_sec : most) * (int64_t)SECOND + t->tv_nsec;
}

static int64_t time_of(clockid_t clock)
{
	struct timespec t;
	return clock_gettime(clock, &t) < 0 ? 0 : ns_of(&t);
}

static struct timespec span(int64_t ns) { return (struct timespec){ns / SECOND, ns % SECOND}; }

// go_on sleeps until then, if only kicks end the sleep. It returns what is left. signals is how many
// handlers had run before the call.
static int64_t go_on(uint32_t signals, clockid_t clock, int64_t until)
{
	sigset_t mask;
	int64_t left;
	block(&mask);
	for (bool on = true; (left = until - time_of(clock)) > 0 && on && sleep_signals == signals;) {
		struct timespec t = span(left);
		uint32_t kicks = sleep_kicks;
		on = real.ppoll(NULL, 0, &t, &mask) == 0 || sleep_kicks != kicks;
	}
	real.pthread_sigmask(SIG_SETMASK, &mask, NULL);
	return left > 0 ? left : 0;
}

EXPORT int clock_nanosleep(clockid_t clock, int flags, const struct timespec *t, struct timespec *rest)
{
	HOOK();
	if (undisturbed())
		return real.clock_nanosleep(clock, flags, t, rest);
	bool absolute = flags & TIMER_ABSTIME;
	struct timespec left;
	struct sleep_since s = sleep_now();
	int e = real.clock_nanosleep(clock, flags, t, &left);
	if (e != EINTR)
		return e;
	if (sleep_kicked(s)) {
		int64_t until = absolute ? ns_of(t) : time_of(clock) + ns_of(&left);
		left = span(go_on(s.signals, clock, until));
		if (left.tv_sec == 0 && left.tv_nsec == 0)
			return 0;
	}
	if (rest && !absolute)
		*rest = left;
	return EINTR;
}

EXPORT int nanosleep(const struct timespec *t, struct timespec *rest)
{
	HOOK();
	if (undisturbed())
		return real.nanosleep(t, rest);
	int e = clock_nanosleep(CLOCK_MONOTONIC, 0, t, rest);
	if (!e)
		return 0;
	errno = e;
	return -1;
}
ALSO(__nanosleep, nanosleep);

EXPORT int usleep(useconds_t us)
{
	struct timespec t = span(us * (int64_t)1000);
	return nanosleep(&t, NULL);
}

EXPORT unsigned sleep(unsigned seconds)
{
	struct timespec t = {seconds, 0};
	int saved = errno;
	if (nanosleep(&t, &t) < 0)
		return (unsigned)t.tv_sec;
	errno = saved;
	return 0;
}

EXPORT int thrd_sleep(const struct timespec *t, struct timespec *rest)
{
	HOOK();
	int e = clock_nanosleep(CLOCK_MONOTONIC, 0, t, rest);
	return e == EINTR ? -1 : e ? -2 : 0;
}

EXPORT int sigsuspend(const sigset_t *mask)
{
	HOOK();
	if (undisturbed())
		return real.sigsuspend(mask);
	sigset_t old;
	struct sleep_since s;
	block(&old);
	do {
		s = sleep_now();
		real.sigsuspend(mask);
	} while (errno == EINTR && sleep_kicked(s));
	int saved = errno;
	real.pthread_sigmask(SIG_SETMASK, &old, NULL);
	errno = saved;
	return -1;
}
ALSO(__sigsuspend, sigsuspend);

EXPORT int pause(void)
{
	HOOK();
	sigset_t mask;
	real.pthread_sigmask(SIG_SETMASK, NULL, &mask);
	return sigsuspend(&mask);
}

// A wait that a kick interrupts begins anew, for what is left of its time.
struct wait {
	const struct timespec *time, *left; // NULL: for ever
	struct timespec rest;
	int64_t began;
	struct sleep_since since;
};

static struct wait wait_for(const struct timespec *t)
{
	return (struct wait){t, t, {0, 0}, t ? time_of(CLOCK_MONOTONIC) : 0, sleep_now()};
}

static void anew(struct wait *w)
{
	w->since = sleep_now();
	if (!w->time)
		return;
	int64_t left = w->began + ns_of(w->time) - time_of(CLOCK_MONOTONIC);
	w->rest = span(left > 0 ? left : 0);
	w->left = &w->rest;
}

EXPORT int sigtimedwait(const sigset_t *set, siginfo_t *info, const struct timespec *t)
{
	HOOK();
	struct wait w = wait_for(t);
	siginfo_t own;
	info = info ? info : &own;
	for (;;) {
		int r = real.sigtimedwait(set, info, w.left);
		if (r < 0 ? !sleep_disturbed(&w.since) : !sleep_is_kick(info))
			return r;
		if (r >= 0) // no thread lets the handler run
			conn_kicked();
		anew(&w);
	}
}

EXPORT int sigwaitinfo(const sigset_t *set, siginfo_t *info) { return sigtimedwait(set, info, NULL); }

EXPORT int sigwait(const sigset_t *set, int *signo)
{
	int r, saved = errno;
	while ((r = sigwaitinfo(set, NULL)) < 0 && errno == EINTR)
		;
	int e = errno;
	errno = saved;
	if (r < 0)
		return e;
	*signo = r;
	return 0;
}

EXPORT int semtimedop(int set, struct sembuf *ops, size_t n, const struct timespec *t)
{
	HOOK();
	struct wait w = wait_for(t);
	int r;
	while ((r = real.semtimedop(set, ops, n, w.left)) < 0 && sleep_disturbed(&w.since))
		anew(&w);
	return r;
}

EXPORT int semop(int set, struct sembuf *ops, size_t n) { return semtimedop(set, ops, n, NULL); }

// What waits until a time goes on as it is. These were in a library of their own before version 2.34 of
// the C library, which may come after ours.
#ifdef EXTDS_STATIC
#define NEXT(name) real.name
#else
static void *of_threads(const char *name)
{
	void *threads = dlopen("libpthread.so.0", RTLD_NOW | RTLD_NOLOAD);
	return threads ? dlsym(threads, name) : NULL;
}
#define NEXT(name) (real.name ? real.name : (real.name = (__typeof__(real.name))of_threads(#name)))
#endif

static int missing(void)
{
	errno = ENOSYS;
	return -1;
}

EXPORT int sem_timedwait(sem_t *s, const struct timespec *until)
{
	HOOK();
	__typeof__(real.sem_timedwait) next = NEXT(sem_timedwait);
	return next ? (int)UNKICKED(-1, 0, next(s, until)) : missing();
}

EXPORT int sem_clockwait(sem_t *s, clockid_t clock, const struct timespec *until)
{
	HOOK();
	__typeof__(real.sem_clockwait) next = NEXT(sem_clockwait);
	return next ? (int)UNKICKED(-1, 0, next(s, clock, until)) : missing();
}

EXPORT int msgsnd(int queue, const void *message, size_t n, int flags)
{
	HOOK();
	return (int)UNKICKED(-1, 0, real.msgsnd(queue, message, n, flags));
}

EXPORT ssize_t msgrcv(int queue, void *message, size_t n, long type, int flags)
{
	HOOK();
	return UNKICKED(-1, 0, real.msgrcv(queue, message, n, type, flags));
}
