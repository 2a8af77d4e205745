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
// all of that; a thread sleeps in ppoll on its socket and its perch.
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

static struct perch *perches;
static pthread_mutex_t perches_lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
static __thread struct perch *mine __attribute__((tls_model("initial-exec")));
static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;

struct perch *perch_new(void)
{
	int epfd = files_keep(real.epoll_create1(EPOLL_CLOEXEC));
	if (epfd < 0)
		return NULL;
	struct perch *p = mmap(NULL, sizeof *p, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED || pthread_mutex_lock(&perches_lock) != 0) {
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
	pthread_mutex_unlock(&perches_lock);
	return p;
}

static void forget(struct line *l)
{
	if (l->ch && l->ch->serial == l->serial)
		doorbell_release(l->ch, l->w);
	l->ch = NULL;
}

void perch_free(struct perch *p)
{
	if (!p || pthread_mutex_lock(&perches_lock) != 0)
		return;
	*p->at = p->next;
	if (p->next)
		p->next->at = p->at;
	pthread_mutex_unlock(&perches_lock);
	for (int i = 0; i < p->lines; i++)
		forget(&p->line[i]);
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

bool perch_watch(struct perch *p, enum perch_kind kind, int about, int fd, uint32_t events)
{
	struct epoll_event ev = {.events = events, .data.u64 = (uint64_t)kind << 32 | (uint32_t)about};
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
		doorbell_release(ch, w);
		errno = saved;
		return -1;
	}
	errno = saved;
	if (room < 0)
		room = p->lines++;
	p->line[room] = (struct line){.ch = ch, .serial = ch->serial, .w = w};
	return room;
}

void perch_arm(struct perch *p, int line)
{
	struct line *l = &p->line[line];
	l->armed++;
	doorbell_arm(l->ch, l->w);
}

void perch_disarm(struct perch *p, int line)
{
	struct line *l = &p->line[line];
	if (--l->armed == 0) {
		doorbell_disarm(l->ch, l->w);
		return;
	}
	doorbell_arm(l->ch, l->w);
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

void perch_harvest(struct perch *p)
{
	enum { MOST = 16 };
	struct epoll_event got[MOST];
	int n, saved = errno;
	do {
		n = real.epoll_pwait(p->epfd, got, MOST, 0, NULL);
		for (int i = 0; i < n; i++)
			perch_event(p, &got[i]);
	} while (n == MOST);
	errno = saved;
}

void perch_fork(void) { pthread_mutex_lock(&perches_lock); }

void perch_forked(void) { pthread_mutex_unlock(&perches_lock); }

void perch_child(void)
{
	pthread_mutex_t fresh = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
	perches_lock = fresh;
	mine = NULL;
	while (perches) {
		struct perch *p = perches;
		perches = p->next;
		files_close(p->epfd); // the waiters are the parent's
		munmap(p, sizeof *p);
	}
}
