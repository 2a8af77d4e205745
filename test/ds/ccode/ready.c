// SPDX-License-Identifier: Apache-2.0
//
// ready.c makes the calls that ask or wait for readiness.
#include "calls.h"

#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ring.h"

static const struct word poll_events[] = {
	{"in", POLLIN}, {"pri", POLLPRI}, {"out", POLLOUT}, {"err", POLLERR}, {"hup", POLLHUP},
	{"rdhup", POLLRDHUP}, {"nval", POLLNVAL}, {NULL, 0},
};

static const struct word epoll_events[] = {
	{"in", EPOLLIN}, {"pri", EPOLLPRI}, {"out", EPOLLOUT}, {"err", EPOLLERR}, {"hup", EPOLLHUP},
	{"rdhup", EPOLLRDHUP}, {"et", (long)EPOLLET}, {"oneshot", EPOLLONESHOT},
	{"excl", EPOLLEXCLUSIVE}, {NULL, 0},
};

// Readiness: TIMEOUT in ms

static void c_poll(struct call *c) // poll|ppoll TIMEOUT H EVENTS [H EVENTS]...
{
	struct pollfd p[8];
	nfds_t n = 0;
	int timeout = (int)number(c, 1);
	for (int i = 2; i + 1 < c->argc && n < 8; i += 2, n++)
		p[n] = (struct pollfd){.fd = fd_of(c, i), .events = (short)mask(arg(c, i + 1), poll_events)};
	struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000};
	int r = c->argv[0][1] == 'p' ? ppoll(p, n, timeout < 0 ? NULL : &t, NULL) : poll(p, n, timeout);
	result(c, r);
	for (nfds_t i = 0; r > 0 && i < n; i++) {
		say(c, " %s:", arg(c, 2 + 2 * (int)i));
		say_mask(c, p[i].revents, poll_events);
	}
}

static void c_select(struct call *c) // select|pselect TIMEOUT H rwx [H rwx]...
{
	fd_set s[3];
	int timeout = (int)number(c, 1), top = 0;
	for (int k = 0; k < 3; k++)
		FD_ZERO(&s[k]);
	for (int i = 2; i + 1 < c->argc; i += 2) {
		int fd = fd_of(c, i);
		top = fd >= top ? fd + 1 : top;
		for (int k = 0; k < 3; k++)
			if (strchr(arg(c, i + 1), "rwx"[k]))
				FD_SET(fd, &s[k]);
	}
	struct timeval t = {.tv_sec = timeout / 1000, .tv_usec = timeout % 1000 * 1000};
	struct timespec ts = {.tv_sec = t.tv_sec, .tv_nsec = t.tv_usec * 1000};
	int r = c->argv[0][0] == 'p' ? pselect(top, &s[0], &s[1], &s[2], timeout < 0 ? NULL : &ts, NULL)
				     : select(top, &s[0], &s[1], &s[2], timeout < 0 ? NULL : &t);
	result(c, r);
	for (int i = 2; r > 0 && i + 1 < c->argc; i += 2) {
		say(c, " %s:", arg(c, i));
		for (int k = 0; k < 3; k++)
			if (FD_ISSET(fd_of(c, i), &s[k]))
				say(c, "%c", "rwx"[k]);
	}
}

static void c_epoll(struct call *c) { new(c, epoll_create1(EPOLL_CLOEXEC * (c->argc > 2))); } // H epoll [cloexec]

static void c_ctl(struct call *c) // ctl E add|mod|del H [EVENTS DATA]
{
	const char *op = arg(c, 2);
	struct epoll_event e = {.events = (uint32_t)mask(arg(c, 4), epoll_events), .data.u64 = strtoul(arg(c, 5), NULL, 0)};
	result(c, epoll_ctl(fd_of(c, 1), op[0] == 'a' ? EPOLL_CTL_ADD : op[0] == 'm' ? EPOLL_CTL_MOD : EPOLL_CTL_DEL, fd_of(c, 3), &e));
}

static int by_data(const void *x, const void *y)
{
	const struct epoll_event *a = x, *b = y;
	return a->data.u64 < b->data.u64 ? -1 : a->data.u64 > b->data.u64;
}

// wait|pwait|pwait2|rawwait|ownwait E TIMEOUT [MAX]: events sorted by data; rawwait is by syscall(2), ownwait by
// an instruction of our own
static void c_wait(struct call *c)
{
	struct epoll_event e[16];
	int timeout = (int)number(c, 2), max = c->argc > 3 ? (int)number(c, 3) : 16;
	struct timespec t = {.tv_sec = timeout / 1000, .tv_nsec = timeout % 1000 * 1000000};
	int r;
	if (strcmp(c->argv[0], "wait") == 0)
		r = epoll_wait(fd_of(c, 1), e, max, timeout);
	else if (strcmp(c->argv[0], "pwait") == 0)
		r = epoll_pwait(fd_of(c, 1), e, max, timeout, NULL);
	else if (strcmp(c->argv[0], "rawwait") == 0)
		r = (int)syscall(SYS_epoll_pwait2, fd_of(c, 1), e, max, timeout < 0 ? NULL : &t, NULL, 8);
	else if (strcmp(c->argv[0], "ownwait") == 0)
		r = (int)instruction(SYS_epoll_pwait2, fd_of(c, 1), (long)e, max, timeout < 0 ? 0 : (long)&t);
	else
		r = epoll_pwait2(fd_of(c, 1), e, max, timeout < 0 ? NULL : &t, NULL);
	result(c, r);
	if (r > 0)
		qsort(e, (size_t)r, sizeof e[0], by_data);
	for (int i = 0; i < r; i++) {
		say(c, " %#lx:", (unsigned long)e[i].data.u64);
		say_mask(c, (long)e[i].events, epoll_events);
	}
}

const struct entry ready_calls[] = {
	{"epoll", c_epoll, true}, {"poll", c_poll, false}, {"ppoll", c_poll, false},
	{"select", c_select, false}, {"pselect", c_select, false}, {"ctl", c_ctl, false},
	{"wait", c_wait, false}, {"pwait", c_wait, false}, {"pwait2", c_wait, false},
	{"rawwait", c_wait, false}, {"ownwait", c_wait, false},
	{NULL, NULL, false},
};
