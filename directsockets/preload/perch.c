// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A thread that blocks, or an epoll set of the program, has a perch once it has
// slept on a lane. All in it is watched edge-triggered, so an event is told once
// to this perch and costs nothing until the next:
//
//	doorbells      one per channel, the eventfd of our waiter there
//	sockets        the control socket of each channel, for its hang-up
//
// and for an epoll set (epset.c) the TCP sockets of its lanes, the perches of sets
// in it, and, level-triggered, the program's own set. So one epoll_wait sleeps on
// all of that. A thread sleeps in ppoll on its socket and its perch, and then asks the perch
// what it was. Most threads sleep on one connection again and again: from the second time on
// the perch has its socket, too, and one epoll_wait is all.
//
// A socket's event is told once, to whichever call of the thread asks the perch next, perhaps that
// of a signal handler that sleeps, too. It notes that in the connection (rx_hint), where all look
// before they sleep like this, and then at rx_fin: another thread may have asked the kernel
// meanwhile, and noted what it said. And it rings the thread's own bell if a sleep is armed there,
// for that may be just about to begin (model "alone"). While bytes come by TCP nobody sleeps like
// this: some may be left of an event that was told before.
//
// A line to a channel is kept for as long as the perch: sleeping again costs no
// system call more than plain sleeping. Lines to channels that have ended are
// found by the serial number and used again.
//
// Nothing here may allocate: signal handlers sleep too. A handler that does so
// while the call it interrupted is between arming and sleeping leaves that
// armed, and rings its own doorbell, so that it looks again.
#include "real.h"

#include "perch.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>

#include "channel.h"
#include "doorbell.h"
#include "files.h"
#include "nap.h"

static struct perch *perches;
static struct lock perches_lock;
static __thread struct perch *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct perch *perch_new(void)
{
	int epfd = files_keep(real.epoll_create1(EPOLL_CLOEXEC));
	if (epfd < 0)
		return NULL;
	struct perch *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || lock_take(&perches_lock, &lock_own) == LOCK_REFUSED) {
		if (p != MAP_FAILED)
			munmap(p, sizeof *p);
		files_close(epfd);
		return NULL;
	}
	p->epfd = epfd;
	p->next = perches;
	p->at = &perches;
	if (perches)
		perches->at = &p->next;
	perches = p;
	lock_give(&perches_lock);
	return p;
}

static void forget(struct line *l)
{
	if (l->ch && l->ch->serial == l->serial)
		doorbell_release(l->ch, l->own, l->w);
	l->ch = NULL;
}

void perch_free(struct perch *p)
{
	if (!p || lock_take(&perches_lock, &lock_own) == LOCK_REFUSED)
		return;
	*p->at = p->next;
	if (p->next)
		p->next->at = p->at;
	lock_give(&perches_lock);
	_Atomic uint32_t *stripe = doorbell_touch(p);
	for (int i = 0; i < p->lines; i++)
		forget(&p->line[i]);
	doorbell_touched(stripe);
	files_close(p->epfd);
	munmap(p, sizeof *p);
}

static void thread_ends(void *arg)
{
	mine = NULL;
	perch_free(arg);
}
static void make_key(void) { pthread_key_create(&key, thread_ends); }

struct perch *perch_mine(void)
{
	if (!mine) {
		pthread_once(&once, make_key);
		mine = perch_new();
		pthread_setspecific(key, mine);
	}
	return mine;
}

static struct epoll_event perch_mark(enum perch_kind kind, int about, uint32_t events)
{
	return (struct epoll_event){.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)about};
}

bool perch_watch(struct perch *p, enum perch_kind kind, int about, int fd, uint32_t events)
{
	struct epoll_event ev = perch_mark(kind, about, events);
	return real.epoll_ctl(p->epfd, EPOLL_CTL_ADD, fd, &ev) == 0 || errno == EEXIST;
}

void perch_ignore(struct perch *p, int fd)
{
	int saved = errno;
	real.epoll_ctl(p->epfd, EPOLL_CTL_DEL, fd, NULL);
	errno = saved;
}

int perch_line(struct perch *p, struct channel *ch)
{
	int room = -1;
	// The memory of a channel stays what it is; only what it points to goes.
	for (int i = 0; i < p->lines; i++) {
		struct line *l = &p->line[i];
		if (l->ch == ch && l->serial == ch->serial)
			return i;
		if (room < 0 && !l->armed && (!l->ch || l->ch->serial != l->serial))
			room = i;
	}
	if (room < 0 && p->lines == (int)(sizeof p->line / sizeof p->line[0]))
		return -1;
	int saved = errno, w = doorbell_claim(ch);
	if (!perch_watch(p, PERCH_BELL, ch->ring_own[w], ch->ring_own[w], EPOLLIN | EPOLLET) ||
	    !perch_watch(p, PERCH_HANGUP, ch->ctl, ch->ctl, EPOLLRDHUP | EPOLLET)) {
		doorbell_release(ch, lane_head(&ch->own), w);
		errno = saved;
		return -1;
	}
	errno = saved;
	if (room < 0)
		room = p->lines++;
	p->line[room] = (struct line){.ch = ch, .own = lane_head(&ch->own), .serial = ch->serial, .w = w};
	return room;
}

void perch_arm(struct perch *p, int line)
{
	struct line *l = &p->line[line];
	l->armed++;
	doorbell_arm(l->own, l->w);
}

void perch_disarm(struct perch *p, int line)
{
	struct line *l = &p->line[line];
	if (--l->armed == 0) {
		doorbell_disarm(l->ch, l->own, l->w);
		return;
	}
	doorbell_arm(l->own, l->w);
	doorbell_wake(l->ch, l->w);
}

struct channel *perch_event(struct perch *p, const struct epoll_event *ev)
{
	bool bell = perch_kind(ev) == PERCH_BELL;
	if (!bell && (perch_kind(ev) != PERCH_HANGUP || !(ev->events & (EPOLLHUP | EPOLLERR | EPOLLRDHUP))))
		return NULL;
	for (int i = 0; i < p->lines; i++) {
		const struct line *l = &p->line[i];
		struct channel *ch = l->ch;
		if (!ch || ch->serial != l->serial || perch_about(ev) != (bell ? ch->ring_own[l->w] : ch->ctl))
			continue;
		if (bell)
			channel_rung(ch);
		else
			channel_kill(ch, REASON_PEER_GONE);
		return atomic_load(&ch->live) == 1 ? NULL : ch;
	}
	return NULL;
}

bool perch_alone(struct perch *p, int line, struct conn *c, int fd)
{
	atomic_thread_fence(memory_order_acquire); // rx_hint after the slots: see announce in receive.c
	if (p->sleeps > 1 || c->rx_mode != MODE_LANE || c->rx_hint || c->rx_fin) // this after the hint
		return false;
	bool again = p->last.c == c && p->last.ino == c->ino && p->last.fd == fd && p->last.line == line;
	if (again && p->last.watched)
		return true;
	if (!again) {
		if (p->last.watched && files_conn(p->last.fd) == p->last.c)
			perch_ignore(p, p->last.fd); // else it is closed, and out of the set with its last copy
		p->last.c = c;
		p->last.ino = c->ino;
		p->last.fd = fd;
		p->last.line = line;
		p->last.watched = false;
		return false;
	}
	// Both tell what there is already. It is there under the same number if that was closed, and
	// opened again as a copy of the same.
	struct epoll_event ev = perch_mark(PERCH_SOCKET, fd, EPOLLIN | EPOLLRDHUP | EPOLLET);
	int saved = errno;
	p->last.watched = real.epoll_ctl(p->epfd, EPOLL_CTL_ADD, fd, &ev) == 0 ||
			  (errno == EEXIST && real.epoll_ctl(p->epfd, EPOLL_CTL_MOD, fd, &ev) == 0);
	errno = saved;
	return p->last.watched;
}

// socket_event: see above.
static void socket_event(struct perch *p, const struct epoll_event *ev)
{
	struct line *l = &p->line[p->last.line];
	if (!p->last.watched || perch_about(ev) != p->last.fd)
		return; // of one that was closed
	atomic_store(&p->last.c->rx_hint, 1); // if it is another one by now, that looks once in vain
	if (l->armed && l->ch && l->ch->serial == l->serial)
		doorbell_wake(l->ch, l->w);
}

void perch_take(struct perch *p, const struct epoll_event *got, int n)
{
	for (int i = 0; i < n; i++) {
		if (perch_kind(&got[i]) == PERCH_SOCKET)
			socket_event(p, &got[i]);
		else
			perch_event(p, &got[i]);
	}
}

void perch_harvest(struct perch *p)
{
	struct epoll_event got[NAP_EVENTS];
	int n, saved = errno;
	do {
		n = real.epoll_pwait(p->epfd, got, NAP_EVENTS, 0, NULL);
		perch_take(p, got, n);
	} while (n == NAP_EVENTS);
	errno = saved;
}

void perch_fork(void) { lock_take(&perches_lock, &lock_own); }

void perch_forked(void) { lock_give(&perches_lock); }

void perch_child(void)
{
	perches_lock = (struct lock){0};
	doorbell_child();
	mine = NULL;
	while (perches) {
		struct perch *p = perches;
		perches = p->next;
		files_close(p->epfd); // the waiters are the parent's
		munmap(p, sizeof *p);
	}
}
