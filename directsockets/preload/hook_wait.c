// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that wait for readiness.
#include "hook.h"

#include <errno.h>
#include <limits.h>
#include <alloca.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "clock.h"
#include "config.h"
#include "conn.h"
#include "epset.h"
#include "files.h"
#include "pollset.h"
#include "sleep.h"

EXPORT int epoll_create1(int flags)
{
	HOOK();
	int fd = real.epoll_create1(flags);
	if (fd >= 0)
		epset_new(fd);
	return fd;
}

EXPORT int epoll_create(int size)
{
	if (size <= 0) {
		errno = EINVAL;
		return -1;
	}
	return epoll_create1(0);
}

static int done(struct epset *e, int r)
{
	epset_put(e); // errno stays
	return r;
}

EXPORT int epoll_ctl(int epfd, int op, int fd, struct epoll_event *ev)
{
	HOOK();
	struct epset *e = epset_get(epfd);
	if (e)
		return done(e, epset_ctl(e, epfd, op, fd, ev));
	int r = real.epoll_ctl(epfd, op, fd, ev);
	if (r == 0 && op != EPOLL_CTL_DEL)
		hook_leave(fd, REASON_NESTED); // a set that we do not know, such as one from before exec
	return r;
}

// concerned: what is polled may be ours, and the program does not mind other system calls than its own.
static bool concerned(void) { return files_top() > 0 && !config.off; }

static int64_t ns_of_ms(int ms) { return ms < 0 ? -1 : (int64_t)ms * 1000000; }
static int64_t ns_of(const struct timespec *t)
{
	if (!t)
		return -1;
	return t->tv_sec > 1000000000 ? -1 : (int64_t)t->tv_sec * 1000000000 + t->tv_nsec;
}
static bool legal(const struct timespec *t) { return !t || (t->tv_sec >= 0 && t->tv_nsec >= 0 && t->tv_nsec < 1000000000); }

EXPORT int epoll_pwait(int epfd, struct epoll_event *evs, int max, int ms, const sigset_t *mask)
{
	HOOK();
	struct epset *e = epset_get(epfd);
	return e ? done(e, epset_wait(e, epfd, evs, max, ns_of_ms(ms), mask)) : real.epoll_pwait(epfd, evs, max, ms, mask);
}

EXPORT int epoll_wait(int epfd, struct epoll_event *evs, int max, int ms)
{
	HOOK();
	struct epset *e = epset_get(epfd);
	return e ? done(e, epset_wait(e, epfd, evs, max, ns_of_ms(ms), NULL)) : real.epoll_wait(epfd, evs, max, ms);
}

EXPORT int epoll_pwait2(int epfd, struct epoll_event *evs, int max, const struct timespec *t, const sigset_t *mask)
{
	HOOK();
	struct epset *e = legal(t) ? epset_get(epfd) : NULL;
	if (e)
		return done(e, epset_wait(e, epfd, evs, max, ns_of(t), mask));
	return real.epoll_pwait2 ? real.epoll_pwait2(epfd, evs, max, t, mask)
				 : (int)real.syscall(SYS_epoll_pwait2, epfd, evs, max, t, mask, (size_t)_NSIG / 8);
}

EXPORT int poll(struct pollfd *fds, nfds_t n, int ms)
{
	HOOK();
	return concerned() ? pollset_wait(fds, n, ns_of_ms(ms), NULL) : real.poll(fds, n, ms);
}
ALSO(__poll, poll);

EXPORT int ppoll(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask)
{
	HOOK();
	return concerned() && legal(t) ? pollset_wait(fds, n, ns_of(t), mask) : real.ppoll(fds, n, t, mask);
}

EXPORT int __poll_chk(struct pollfd *fds, nfds_t n, int ms, size_t room)
{
	if (room / sizeof *fds < n)
		__chk_fail();
	return poll(fds, n, ms);
}

EXPORT int __ppoll_chk(struct pollfd *fds, nfds_t n, const struct timespec *t, const sigset_t *mask, size_t room)
{
	if (room / sizeof *fds < n)
		__chk_fail();
	return ppoll(fds, n, t, mask);
}

// select as poll: bits to pollfds and back. Sets may be longer than FD_SETSIZE.
static bool bit(const fd_set *s, int fd)
{
	return s && ((const unsigned long *)s)[fd / (8 * (int)sizeof(long))] >> (fd % (8 * (int)sizeof(long))) & 1;
}

static void bit_set(fd_set *s, int fd)
{
	((unsigned long *)s)[fd / (8 * (int)sizeof(long))] |= 1ul << (fd % (8 * (int)sizeof(long)));
}

static void zero(fd_set *s, int n)
{
	if (s)
		memset(s, 0, (size_t)(n + 8 * (int)sizeof(long) - 1) / (8 * sizeof(long)) * sizeof(long));
}

// selects tells whether any tracked descriptor is in the sets.
static bool selects(int n, const fd_set *r, const fd_set *w, const fd_set *x)
{
	for (int fd = 0; fd < n && concerned() && fd < files_top(); fd++)
		if (files_table[fd] && (bit(r, fd) || bit(w, fd) || bit(x, fd)))
			return true;
	return false;
}

// The kernel's own table: POLLIN_SET, POLLOUT_SET, POLLEX_SET.
static bool readable(const struct pollfd *p) { return p->events & POLLIN && p->revents & (POLLIN | POLLHUP | POLLERR); }
static bool writable(const struct pollfd *p) { return p->events & POLLOUT && p->revents & (POLLOUT | POLLERR); }
static bool urgent(const struct pollfd *p) { return p->events & POLLPRI && p->revents & POLLPRI; }

// hung_up counts those that poll always tells, and select only to who asks whether they are readable, and takes them out.
static int hung_up(struct pollfd *p, nfds_t n)
{
	int count = 0;
	for (nfds_t i = 0; i < n; i++)
		if (p[i].revents && !readable(&p[i]) && !writable(&p[i]) && !urgent(&p[i]) && !(p[i].revents & POLLNVAL)) {
			p[i].fd = -1;
			count++;
		}
	return count;
}

// by_poll selects, from the time `begun` on.
static int by_poll(int n, fd_set *r, fd_set *w, fd_set *x, int64_t timeout, uint64_t begun, const sigset_t *mask)
{
	enum { ON_STACK = 128 };
	struct pollfd stack[ON_STACK], *p = stack;
	nfds_t k = 0;
	for (int fd = 0; fd < n; fd++)
		k += bit(r, fd) || bit(w, fd) || bit(x, fd);
	if (k > ON_STACK && !(p = malloc(k * sizeof *p))) {
		errno = ENOMEM;
		return -1;
	}
	k = 0;
	for (int fd = 0; fd < n; fd++)
		if (bit(r, fd) || bit(w, fd) || bit(x, fd))
			p[k++] = (struct pollfd){
				fd, (short)((bit(r, fd) ? POLLIN : 0) | (bit(w, fd) ? POLLOUT : 0) | (bit(x, fd) ? POLLPRI : 0)), 0};
	int got = pollset_wait(p, k, timeout, mask);
	while (got > 0 && hung_up(p, k) == got)
		got = pollset_wait(p, k, clock_left(timeout, begun), mask);
	int count = got < 0 ? -1 : 0;
	for (nfds_t i = 0; i < k && got > 0; i++)
		if (p[i].revents & POLLNVAL) {
			count = got = -1;
			errno = EBADF;
		}
	if (got >= 0) {
		zero(r, n);
		zero(w, n);
		zero(x, n);
		for (nfds_t i = 0; i < k; i++) {
			if (readable(&p[i])) {
				bit_set(r, p[i].fd);
				count++;
			}
			if (writable(&p[i])) {
				bit_set(w, p[i].fd);
				count++;
			}
			if (urgent(&p[i])) {
				bit_set(x, p[i].fd);
				count++;
			}
		}
	}
	int saved = errno;
	if (p != stack)
		free(p);
	errno = saved;
	return count;
}

EXPORT int select(int n, fd_set *r, fd_set *w, fd_set *x, struct timeval *t)
{
	HOOK();
	if (n < 0 || (t && (t->tv_sec < 0 || t->tv_usec < 0)))
		return real.select(n, r, w, x, t);
	int64_t timeout = t ? (int64_t)t->tv_sec * 1000000000 + (int64_t)t->tv_usec * 1000 : -1;
	uint64_t begun = t ? clock_ns() : 0;
	int got;
	if (!selects(n, r, w, x)) {
		struct sleep_again again = {.since = sleep_now()};
		const sigset_t *mask = NULL;
		got = real.select(n, r, w, x, t);
		bool on = got < 0 && sleep_goes_on(&again, &mask);
		if (on)
			got = by_poll(n, r, w, x, clock_left(timeout, begun), clock_ns(), mask);
		sleep_ended(&again);
		if (!on)
			return got;
	} else {
		got = by_poll(n, r, w, x, timeout, begun, NULL);
	}
	if (t) { // Linux leaves what remains
		int saved = errno;
		int64_t left = got == 0 ? 0 : clock_left(timeout, begun);
		t->tv_sec = left / 1000000000;
		t->tv_usec = left % 1000000000 / 1000;
		errno = saved;
	}
	return got;
}
ALSO(__select, select);

EXPORT int pselect(int n, fd_set *r, fd_set *w, fd_set *x, const struct timespec *t, const sigset_t *mask)
{
	HOOK();
	if (n < 0 || !legal(t))
		return real.pselect(n, r, w, x, t, mask);
	uint64_t begun = t ? clock_ns() : 0;
	if (selects(n, r, w, x))
		return by_poll(n, r, w, x, ns_of(t), begun, mask);
	struct sleep_again again = {.since = sleep_now()};
	int got = real.pselect(n, r, w, x, t, mask);
	if (got < 0 && sleep_goes_on(&again, &mask))
		got = by_poll(n, r, w, x, clock_left(ns_of(t), begun), clock_ns(), mask);
	sleep_ended(&again);
	return got;
}
