// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// As for an epoll set (epset.c), but nothing is kept between calls: look at the
// engaged connections in user space and at the rest with a poll of timeout 0,
// spin, then arm this thread's waiter on each channel involved and sleep in
// ppoll on the program's descriptors and our perch.
//
// A set of the program among the descriptors is ready if the kernel's set is or
// something of its own is. While it is slept on, its perch is in its place.
//
// An unengaged connection has a user while it is polled natively, so that nobody
// engages it meanwhile.
//
// Another thread may close what is polled. As in the kernel the call sleeps on, and when it wakes
// what has the number then counts (changed).
#include "real.h"

#include "pollset.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "epset.h"
#include "member.h"
#include "nap.h"
#include "number.h"
#include "perch.h"
#include "sleep.h"
#include "stream.h"
#include "transmit.h"

#define KERNEL_SPIN_NS 10000
enum {
	ON_STACK = 60, // what a frame may have (Makefile), on arm64 too
	LOOKS = 4093, // of this thread between two in which the kernel is asked as well; odd, for
	              // its turn to come to every descriptor
};

// Of a descriptor that is not for the kernel alone.
struct entry {
	struct conn *c;    // kept
	struct epset *set; // kept
	bool engaged;
	bool armed; // the line to its channel, for all entries of that
};

struct pollset {
	struct pollfd *fds, *work; // work has room for one more
	struct entry *entry;
	nfds_t n;
	bool others; // some are for the kernel
	struct perch *perch;
	bool poor; // nobody can ring us for some: sleep for 1 ms at most
};

// When the kernel was last asked by this thread.
static __thread uint64_t kernel_ns __attribute__((tls_model("initial-exec")));
static __thread uint32_t looks __attribute__((tls_model("initial-exec")));
static __thread struct spin spin __attribute__((tls_model("initial-exec")));

// at is the descriptor to use for an engaged one: another thread may have closed the program's.
static int at(const struct pollset *p, nfds_t i) { return number_now(p->entry[i].c, p->fds[i].fd); }

// ends asks the kernel about the ends of those engaged of which it was not asked lately,
// which are always wanted. It cannot tell all of one that has shut down or hung up.
static void ends(struct pollset *p)
{
	struct timespec zero = {0, 0};
	bool any = false;
	for (nfds_t i = 0; i < p->n; i++) {
		bool due = p->entry[i].engaged && stream_asks(p->entry[i].c);
		p->work[i] = (struct pollfd){due ? at(p, i) : -1, POLLIN | POLLRDHUP, 0};
		any |= due;
	}
	uint64_t now = clock_ticks();
	if (!any)
		return;
	bool told = real.ppoll(p->work, p->n, &zero, NULL) >= 0;
	for (nfds_t i = 0; i < p->n; i++) {
		struct conn *c = p->entry[i].c;
		if (p->work[i].fd < 0)
			continue;
		if (told && !p->work[i].revents && !atomic_load((_Atomic uint64_t *)&c->peer->shut) && atomic_load(&c->channel->live) == 1)
			stream_asked(c, now);
		else
			atomic_store(&c->rx_hint, 1);
	}
}

// look computes the readiness of the engaged ones and of what sets have of their
// own; with ask, what the kernel has of the former counts too.
static int look(struct pollset *p, bool ask)
{
	int ready = 0;
	if (ask)
		ends(p);
	for (nfds_t i = 0; i < p->n; i++) {
		struct conn *c = p->entry[i].c;
		if (p->entry[i].set) {
			if (ask)
				epset_harvest(p->entry[i].set, false);
			p->fds[i].revents = epset_peek(p->entry[i].set) ? p->fds[i].events & (POLLIN | POLLRDNORM) : 0;
			ready += p->fds[i].revents != 0;
			if (ask && p->fds[i].revents)
				epset_yield(p->entry[i].set); // others may sleep, whose wake-up we have taken
		}
		if (!p->entry[i].engaged)
			continue;
		uint32_t want = (uint32_t)(unsigned short)p->fds[i].events;
		if (want & POLLRDNORM)
			want |= EPOLLIN;
		if (want & POLLWRNORM)
			want |= EPOLLOUT;
		if (ask && c->rx_mode == MODE_TCP && want & (EPOLLIN | EPOLLRDHUP | EPOLLPRI))
			atomic_store(&c->rx_hint, 1); // there the kernel knows all
		uint32_t r = 0;
		if (++looks % LOOKS == 0)
			atomic_store(&c->rx_hint, 1);
		if (stream_glance(c, want))
			r = stream_ready(c, at(p, i), want);
		if (r & EPOLLIN)
			r |= POLLRDNORM;
		if (r & EPOLLOUT)
			r |= POLLWRNORM;
		p->fds[i].revents = (short)(r & ((unsigned short)p->fds[i].events | POLLERR | POLLHUP));
		ready += p->fds[i].revents != 0;
		if (r & EPOLLIN)
			stream_told(c, clock_ticks());
	}
	return ready;
}

// others asks the kernel about the rest, with timeout 0, and counts them.
static int others(struct pollset *p)
{
	struct timespec zero = {0, 0};
	int ready = 0;
	if (!p->others)
		return 0;
	for (nfds_t i = 0; i < p->n; i++)
		p->work[i] = (struct pollfd){p->entry[i].engaged ? -1 : p->fds[i].fd, p->fds[i].events, 0};
	if (real.ppoll(p->work, p->n, &zero, NULL) < 0)
		return -1;
	for (nfds_t i = 0; i < p->n; i++) {
		if (p->entry[i].set)
			p->fds[i].revents |= p->work[i].revents;
		else if (!p->entry[i].engaged)
			p->fds[i].revents = p->work[i].revents;
		ready += !p->entry[i].engaged && p->fds[i].revents;
	}
	return ready;
}

static void arm(struct pollset *p)
{
	static __thread uint32_t marks __attribute__((tls_model("initial-exec")));
	uint32_t mark = ++marks;
	p->perch = perch_mine();
	p->poor = false;
	if (p->perch)
		p->perch->sleeps++;
	for (nfds_t i = 0; i < p->n; i++) {
		struct conn *c = p->entry[i].c;
		if (p->entry[i].set)
			epset_arm(p->entry[i].set);
		if (!p->entry[i].engaged)
			continue;
		stream_heed(c, at(p, i));
		int line = p->perch ? perch_line(p->perch, c->channel) : -1;
		if (line < 0) {
			p->poor = true;
			continue;
		}
		struct line *l = &p->perch->line[line];
		if (p->fds[i].events & (POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI))
			doorbell_watch(&c->own->rx_waiters, l->w);
		if (p->fds[i].events & (POLLOUT | POLLWRNORM)) {
			lane_ask(&c->tx);
			doorbell_watch(&c->own->tx_waiters, l->w);
		}
		p->entry[i].armed = l->mark != mark;
		if (p->entry[i].armed)
			perch_arm(p->perch, line);
		l->mark = mark;
	}
}

static void disarm(struct pollset *p)
{
	if (p->perch)
		p->perch->sleeps--;
	for (nfds_t i = 0; i < p->n; i++) {
		if (p->entry[i].set)
			epset_disarm(p->entry[i].set);
		if (p->entry[i].armed)
			perch_disarm(p->perch, perch_line(p->perch, p->entry[i].c->channel));
		p->entry[i].armed = false;
	}
	for (nfds_t i = 0; i < p->n; i++) {
		struct conn *c = p->entry[i].c;
		int line = p->entry[i].engaged && p->perch ? perch_line(p->perch, c->channel) : -1;
		if (line < 0 || p->perch->line[line].armed) // by a call that we interrupted
			continue;
		doorbell_unwatch(c->channel, &c->own->rx_waiters, p->perch->line[line].w);
		doorbell_unwatch(c->channel, &c->own->tx_waiters, p->perch->line[line].w);
	}
}

// keep holds what is polled once more, or no longer.
static void keep(void *call, int by)
{
	struct pollset *p = call;
	for (nfds_t i = 0; i < p->n && by; i++) {
		struct entry *e = &p->entry[i];
		if (e->set)
			by > 0 ? epset_more(e->set) : epset_put(e->set);
		if (e->c)
			by > 0 ? conn_more(e->c) : conn_put(e->c);
	}
}

static void hold(void *call, int by)
{
	struct pollset *p = call;
	if (by == 0) {
		p->perch = NULL;
		for (nfds_t i = 0; i < p->n; i++)
			p->entry[i].armed = false;
	} else if (by > 0) {
		arm(p);
	} else {
		disarm(p);
	}
}

// sooner is the shorter of two times to sleep; a negative one has no end, nor has ~0.
static int64_t sooner(int64_t left, uint64_t ns) { return left < 0 || (uint64_t)left > ns ? (int64_t)ns : left; }

// alone: it is about one connection, and nothing but what its lane brings, or its end.
static bool alone(const struct pollset *p, bool timed)
{
	struct conn *c = p->entry[0].c;
	return p->n == 1 && p->entry[0].engaged && p->perch && !p->poor && (!timed || nap_timed()) &&
	       p->fds[0].events & (POLLIN | POLLRDNORM) && !(p->fds[0].events & (POLLOUT | POLLWRNORM)) &&
	       perch_alone(p->perch, perch_line(p->perch, c->channel), c, at(p, 0));
}

// asleep really sleeps: the result of ppoll on everything, not yet evaluated.
static int asleep(struct pollset *p, int64_t left, const sigset_t *mask)
{
	for (nfds_t i = 0; i < p->n; i++) {
		struct conn *c = p->entry[i].c;
		p->work[i] = (struct pollfd){p->entry[i].engaged ? at(p, i) : p->fds[i].fd, p->fds[i].events, 0};
		if (p->entry[i].set && p->fds[i].events & (POLLIN | POLLRDNORM)) {
			int fd = epset_watch(p->entry[i].set);
			if (fd >= 0)
				p->work[i] = (struct pollfd){fd, POLLIN, 0};
			p->poor |= fd < 0;
			left = sooner(left, p->entry[i].set->patience);
		}
		if (!p->entry[i].engaged)
			continue;
		if (p->fds[i].events & (POLLOUT | POLLWRNORM))
			left = sooner(left, tx_patience(c));
		short ev = 0;
		if (c->rx_mode == MODE_TCP && !c->rx_eof)
			ev |= p->fds[i].events & (POLLIN | POLLRDNORM | POLLRDHUP | POLLPRI);
		else if (!c->rx_fin && !c->rx_eof && !c->rx_shut)
			ev |= POLLIN | POLLRDHUP;
		if (c->rcvlowat > 1) { // the kernel would tell of less, again and again
			ev &= ~(POLLIN | POLLRDNORM);
			p->poor = true;
		}
		if (c->tx_mode == MODE_TCP)
			ev |= p->fds[i].events & (POLLOUT | POLLWRNORM);
		p->work[i].events = ev;
	}
	p->work[p->n] = (struct pollfd){p->perch ? p->perch->epfd : -1, POLLIN, 0};
	if (p->poor && (left < 0 || left > 1000000))
		left = 1000000;
	struct timespec t = {left / 1000000000, left % 1000000000};
	struct epoll_event got[NAP_EVENTS];
	bool one = alone(p, left >= 0);
	int r = one ? nap_epoll(p->perch->epfd, got, left < 0 ? NULL : &t, mask, hold, p)
		    : nap_poll(p->work, p->n + 1, left < 0 ? NULL : &t, mask, hold, p);
	int saved = errno;
	if (one)
		perch_take(p->perch, got, r);
	else if (r > 0 && p->work[p->n].revents)
		perch_harvest(p->perch);
	for (nfds_t i = 0; i < p->n && r > 0; i++) {
		struct conn *c = p->entry[i].c;
		if (p->entry[i].set && p->work[i].revents)
			epset_harvest(p->entry[i].set, true);
		if (!p->entry[i].engaged)
			continue;
		if (p->work[i].revents || atomic_load(&c->channel->live) != 1)
			atomic_store(&c->rx_hint, 1);
	}
	errno = saved;
	return r;
}

// refused notes for which of them there is no room, which was wanted.
static void refused(const struct pollset *p)
{
	for (nfds_t i = 0; i < p->n; i++)
		if (p->entry[i].engaged && p->fds[i].events & (POLLOUT | POLLWRNORM) && !p->fds[i].revents)
			tx_asked(p->entry[i].c);
}

static int count(const struct pollset *p)
{
	int n = 0;
	for (nfds_t i = 0; i < p->n; i++)
		n += p->fds[i].revents != 0;
	return n;
}

// changed: a number is another connection's by now, or nothing's.
static bool changed(const struct pollset *p)
{
	for (nfds_t i = 0; i < p->n; i++)
		if (p->entry[i].engaged && files_conn(p->fds[i].fd) != p->entry[i].c)
			return true;
	return false;
}

// run is the call, or CHANGED.
enum { CHANGED = -2 };
static int run(struct pollset *p, uint64_t begun, int64_t timeout, const sigset_t *mask)
{
	uint64_t now = begun;
	for (;;) {
		bool ask = timeout == 0 || now - kernel_ns >= KERNEL_SPIN_NS;
		int n = look(p, ask);
		if (n > 0) {
			// What is told of a lane may be there because of something that the kernel had before.
			return others(p) > 0 ? count(p) : n;
		}
		if (ask) {
			kernel_ns = now;
			n = others(p);
			if (n != 0)
				return n;
		}
		int64_t left = timeout < 0 ? -1 : timeout - (int64_t)(now - begun);
		refused(p);
		if (timeout >= 0 && left <= 0)
			return 0;
		bool near = false, engaged = false;
		uint32_t signals = sleep_signals;
		for (nfds_t i = 0; i < p->n; i++)
			if (p->entry[i].engaged) {
				near |= channel_near(p->entry[i].c->channel);
				engaged = true;
			}
		uint64_t budget = mask || near || !engaged ? 0 : spin_ns(&spin);
		if (budget) {
			uint64_t spun = now, end = now + budget, next = now + KERNEL_SPIN_NS;
			if (left >= 0 && end > now + (uint64_t)left)
				end = now + (uint64_t)left;
			bool found = false;
			while (!found && now < end) {
				now = spin_pass(spun, now);
				found = look(p, now >= next) > 0;
				if (!found && sleep_signals != signals) {
					errno = EINTR;
					return -1;
				}
				if (now >= next) {
					next = now + KERNEL_SPIN_NS;
					kernel_ns = now;
					n = found ? 0 : others(p);
					if (n != 0)
						return n;
				}
			}
			spin_result(&spin, found);
			if (found)
				continue;
		}
		for (int i = 0; n == 0 && near && !mask && sleep_signals == signals && spin_near(i); i++)
			n = look(p, false);
		if (n > 0)
			continue; // the kernel may have some, too
		if (sleep_signals != signals && !mask) {
			errno = EINTR;
			return -1;
		}
		now = clock_ns();
		left = timeout < 0 ? -1 : now - begun < (uint64_t)timeout ? timeout - (int64_t)(now - begun) : 0;
		arm(p);
		n = look(p, true); // the second look
		int r = n > 0 ? 0 : asleep(p, left, mask);
		int saved = errno;
		disarm(p);
		errno = saved;
		if (r < 0)
			return -1;
		now = clock_ns();
		kernel_ns = 0; // what the kernel had is asked for in the next round
		if (changed(p))
			return CHANGED;
	}
}

static int wait_for(struct pollfd *fds, nfds_t n, int64_t timeout, const sigset_t *mask)
{
	struct entry stack_entry[ON_STACK];
	struct pollfd stack_work[ON_STACK + 1];
	struct pollset p = {.fds = fds, .n = n, .entry = stack_entry, .work = stack_work};
	struct timespec t = {timeout / 1000000000, timeout % 1000000000};
	bool tracked = false, engaged = false;
	for (nfds_t i = 0; i < n && !tracked; i++)
		tracked = files_conn(fds[i].fd) || files_epset(fds[i].fd);
	if (!tracked)
		return real.ppoll(fds, n, timeout < 0 ? NULL : &t, mask);
	void *heap = NULL;
	if (n > ON_STACK) {
		heap = malloc(n * sizeof *p.entry + (n + 1) * sizeof *p.work);
		if (!heap) {
			errno = ENOMEM;
			return -1;
		}
		p.work = heap;
		p.entry = (struct entry *)(void *)(p.work + n + 1);
	}
	if (rendezvous_waiting > 0)
		rendezvous_progress();
	for (nfds_t i = 0; i < n; i++) {
		struct conn *c = fds[i].fd < 0 ? NULL : conn_get(fds[i].fd);
		struct epset *set = c || fds[i].fd < 0 ? NULL : epset_get(fds[i].fd);
		p.entry[i] = (struct entry){c, set, false, false};
		if (c) {
			if (!c->watched)
				c->watched = true;
			p.entry[i].engaged = conn_enter(c, fds[i].fd);
			if (p.entry[i].engaged)
				channel_ran(c->channel);
		}
		engaged |= p.entry[i].engaged || set;
		p.others |= !p.entry[i].engaged && fds[i].fd >= 0;
	}
	int r;
	if (engaged) {
		struct nap nap;
		nap_begin(&nap, keep, &p);
		for (nfds_t i = 0; i < n; i++)
			fds[i].revents = 0;
		r = run(&p, clock_ns(), timeout, mask);
		nap_end(&nap);
	} else {
		r = nap_poll(fds, n, timeout < 0 ? NULL : &t, mask, keep, &p);
	}
	int saved = errno;
	keep(&p, -1);
	free(heap);
	errno = saved;
	return r;
}

int pollset_wait(struct pollfd *fds, nfds_t n, int64_t timeout, const sigset_t *mask)
{
	struct sleep_again again = {.since = sleep_now()};
	for (;;) {
		uint64_t begun = clock_ticks();
		int r = wait_for(fds, n, timeout, mask);
		if (r != CHANGED && (r >= 0 || !sleep_goes_on(&again, &mask))) {
			sleep_ended(&again);
			return r;
		}
		timeout = clock_less(timeout, clock_since(begun));
	}
}
