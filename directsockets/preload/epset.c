// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// The kernel's set stays the program's set, with the program's data, of all that
// is on TCP: for such members we only keep what the program asked for, and the
// set costs nothing. A member whose connection is engaged leaves the kernel's set
// and is ours: its readiness is computed in user space (member.c). So there is
// nothing of ours in the program's set that could be seen, and whoever watches
// that set in the kernel sees what is true of it.
//
//	epoll_wait:  look at ours ─found──► (every 50 us: the kernel too) return
//	             spin, the kernel every 10 us
//	             flush DELs, arm all channels, look again
//	             sleep on the perch
//	             disarm, look again
//
// Sleeping (perch.c): the set's perch holds the doorbells, the TCP sockets of the
// members that are ours, edge-triggered (an event only says that the kernel has
// something), and the program's set itself, level-triggered. MOD of a member that
// is ours is no system call; DEL is recorded and done just before a real sleep,
// an ADD before that revives it.
//
// Threads that sleep in the kernel's set while another one engages a connection of
// it are kicked: a descriptor that is always ready is in the set until the last of
// them has left, and they go on on the perch.
//
// Sets in sets: such a member is always ours. It is ready if the kernel's set is or
// something of its own is; whoever sleeps on the outer set arms the inner one for all
// it wants, and its perch sits in the outer one's. So do poll and select (pollset.c).
//
// A set that a forked child inherits is the same set in the kernel, but members
// that are ours, and what was asked for them, are copied as of the fork. So both
// processes are told of a level, as by the kernel, but of an edge both too.
// Connections are not engaged while such a set of the child has them.
//
// Nor while nobody has waited in such a set by a call of the C library: a program whose
// own system call instructions do (Bun) would not be told of what comes by a lane. A
// connection that does not block is engaged once it is watched, and that is when.
//
// Not engaged either: members whose descriptor was closed while a copy of it
// is open, which the kernel goes on reporting and nobody can take out. One-shot
// members are a matter of their own (oneshot.c).
#include "real.h"

#include "member.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "channel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "marks.h"
#include "oneshot.h"
#include "process.h"

static struct epset *_Atomic sets; // never shorter
static struct lock sets_lock;

static bool forking, prepared; // with sets_lock; and with all sets

// Before fork, no set is in the middle of a change. Who sleeps on a set in a set
// takes locks in another order than that of the list: so never wait for one.
static void prepare(void)
{
	enum { TRIES = 10000 };
	unsigned n = 2; // with that of the perches
	if (lock_take(&sets_lock, &lock_own) == LOCK_REFUSED)
		return; // forking from a signal handler inside a call: hope for the best
	forking = true;
	for (int tries = 0; tries < TRIES && !prepared; tries++) {
		struct epset *e = sets;
		while (e && epset_trylock(e))
			e = e->next;
		prepared = !e;
		for (struct epset *f = sets; e && f != e; f = f->next)
			epset_unlock(f);
		if (e)
			sched_yield();
	}
	for (struct epset *e = prepared ? sets : NULL; e; e = e->next)
		n++;
	perch_fork();
	lock_forks(n);
}

static void done(void)
{
	if (!forking)
		return;
	lock_forks(0);
	perch_forked();
	for (struct epset *e = prepared ? sets : NULL; e; e = e->next)
		epset_unlock(e);
	prepared = forking = false;
	lock_give(&sets_lock);
}

static struct epset *make(void)
{
	static bool once;
	if (!once)
		real_atfork(prepare, done); // the child makes them anew: epset_child
	once = true;
	struct epset *e = calloc(1, sizeof *e);
	if (!e)
		return NULL;
	real_mutex(&e->lock.m);
	e->next = sets;
	sets = e;
	return e;
}

void epset_new(int fd)
{
	if (config.off || fd < 0 || fd >= FILES_MAX || process_borrowed() || lock_take(&sets_lock, &lock_own) == LOCK_REFUSED)
		return;
	struct epset *e;
	for (e = sets; e; e = e->next)
		if (e->refs == 0 && e->users == 0)
			break;
	if (!e)
		e = make();
	if (e && epset_lock(e)) {
		e->epfd = fd;
		e->poor = e->inherited = e->shared = e->kicked = false;
		e->sleepers = e->deleted = e->inside = e->vain = 0;
		e->hold = 0;
		e->start = 0;
		e->full = e->level = e->moved = false;
		e->last = NULL;
		e->refs = 1;
		files_set_epset(fd, e);
		epset_unlock(e);
	}
	lock_give(&sets_lock);
}

void epset_dup(int from, int to)
{
	struct epset *e = epset_get(from);
	if (!e)
		return;
	atomic_fetch_add(&e->refs, 1);
	files_set_epset(to, e);
	epset_put(e);
}

struct epset *epset_get(int fd)
{
	for (;;) {
		struct epset *e = files_epset(fd);
		if (!e)
			return NULL;
		epset_more(e);
		if (files_epset(fd) == e)
			return e;
		epset_put(e);
	}
}

void epset_more(struct epset *e) { single_inc(&e->users, single_thread()); }
void epset_put(struct epset *e) { single_drop(&e->users, single_thread()); }

// drop takes a member that is ours out of the perch too.
static void drop(struct epset *e, struct member *m)
{
	if (m->set)
		member_part(e, m);
	else
		member_unwatch(e, m);
	member_free(e, m);
}

void epset_close(int fd)
{
	struct epset *e = epset_get(fd);
	files_clear(fd);
	if (!e)
		return;
	bool last = atomic_fetch_sub(&e->refs, 1) == 1;
	// As a member of others it is gone, or cannot be named by this number any more.
	for (struct epset *f = sets; f; f = f->next) {
		if (f == e || f->refs == 0 || f->cap == 0 || !epset_lock(f))
			continue;
		for (int i = f->nours - 1; i >= 0; i--) {
			struct member *m = f->ours[i];
			if (m->set == e && last)
				drop(f, m);
			else if (m->set == e && member_at(f, fd) == m)
				f->by_fd[fd] = NULL;
		}
		epset_unlock(f);
	}
	if (epset_lock(e)) {
		for (int i = 0; i < files_top() && !last; i++)
			if (files_epset(i) == e) {
				e->epfd = i;
				break;
			}
		for (int i = e->nours - 1; i >= 0 && last; i--)
			drop(e, e->ours[i]);
		for (int i = 0; i < e->cap && last; i++)
			if (e->by_fd[i])
				member_free(e, e->by_fd[i]);
		struct perch *p = e->perch;
		if (last) {
			e->perch = NULL;
			marks_clear(e);
		}
		epset_unlock(e);
		if (last)
			perch_free(p);
	}
	epset_put(e);
}

// has: some descriptor of c is in the set, as far as can be seen without the lock.
static bool has(struct epset *e, const struct conn *c, int fd)
{
	int cap = e->cap; // before by_fd, which only grows
	if (e->refs == 0 || cap == 0)
		return false;
	struct member *_Atomic *by_fd = e->by_fd;
	if (c->refs == 1)
		return fd < cap && by_fd[fd];
	for (int i = 0; i < cap; i++)
		if (by_fd[i] && files_conn(i) == c)
			return true;
	return e->nours > 0;
}

// move has the perch watch a connection of ours by another descriptor of it. One with the
// number by which the program added it is that member again, as it is for the kernel.
static void move(struct epset *e, struct member *m, int to)
{
	member_ignore(e, m);
	if (e->perch)
		perch_watch(e->perch, PERCH_SOCKET, to, to, MEMBER_HINTS);
	m->fd = to;
	m->moved = e->moved = true;
	if (to == m->key)
		e->by_fd[to] = m;
}

// moving: move is due for a member that is, or was added as, this descriptor. The perch
// is asked first for what it knows, which move forgets.
static bool moving(struct epset *e, const struct conn *c, int fd)
{
	bool due = false;
	if (e->nours == 0 || !epset_lock(e))
		return false;
	for (int i = 0; i < e->nours && !due; i++)
		due = e->ours[i]->c == c && (e->ours[i]->fd == fd || e->ours[i]->key == fd);
	epset_unlock(e);
	if (due) {
		epset_harvest(e, false);
		epset_yield(e);
	}
	return due;
}

bool epset_closed(struct conn *c, int fd, int copy)
{
	bool stays = false;
	for (struct epset *e = sets; e; e = e->next) {
		// Who adds it meanwhile comes too late with a lock as well.
		if (e->refs == 0 || (!member_at(e, fd) && e->nours == 0))
			continue;
		if (copy >= 0)
			moving(e, c, fd);
		if (!epset_lock(e))
			continue;
		struct member *m = member_at(e, fd);
		if (m && !m->ours) {
			// The kernel keeps it while a copy of the socket is open.
			stays |= copy >= 0 && !e->inherited && !m->absent;
			member_free(e, m);
		} else if (m && m->deleted) {
			e->deleted--;
			drop(e, m);
		} else if (m && copy < 0) {
			drop(e, m);
		} else if (m) { // so do we, under the number of the copy for calls of ours
			e->by_fd[fd] = NULL;
			move(e, m, copy);
		}
		for (int i = e->nours - 1; i >= 0; i--) {
			m = e->ours[i];
			if (m->c == c && m->fd == fd && copy < 0)
				drop(e, m);
			else if (m->c == c && m->fd == fd)
				move(e, m, copy);
		}
		epset_unlock(e);
	}
	return stays;
}

void epset_disengaged(struct conn *c)
{
	for (struct epset *e = sets; e; e = e->next) {
		// What was inherited by fork and not used is for the parent to give back:
		// it may have changed since.
		if (e->refs == 0 || e->nours == 0 || e->inherited || !epset_lock(e))
			continue;
		epset_flush(e);
		for (int i = e->nours - 1; i >= 0; i--)
			if (e->ours[i]->c == c)
				member_give(e, e->ours[i]);
		epset_unlock(e);
	}
	// Those of other processes of the family do that when they wake.
	conn_stir(c);
	uint64_t mask = c->own ? (c->own->rx_waiters | c->own->tx_waiters) & MASK_RING : 0;
	for (; mask; mask &= mask - 1)
		doorbell_wake(c->channel, __builtin_ctzll(mask));
}

// forget clears a set without descriptors, whose uses are not counted here.
static void forget(struct epset *e)
{
	for (int i = 0; i < e->nours; i++)
		if (member_at(e, e->ours[i]->fd) != e->ours[i])
			free(e->ours[i]);
	for (int i = 0; i < e->cap; i++) {
		free(e->by_fd[i]);
		e->by_fd[i] = NULL;
	}
	e->nours = e->nhot = e->deleted = 0;
}

void epset_child(void)
{
	sets_lock = (struct lock){0};
	prepared = forking = false;
	for (struct epset *e = sets; e; e = e->next) {
		if (e->refs == 0)
			forget(e); // another thread was closing it
		e->lock = (struct lock){0};
		real_mutex(&e->lock.m);
		e->users = e->native = e->inside = e->sleepers = 0;
		e->perch = NULL;
		e->inherited = e->shared = e->refs > 0;
		e->shut = false;
		e->hold = 0;
		e->engaging = NULL;
		marks_clear(e);
	}
	perch_child();
}

void epset_adopt(struct epset *e)
{
	e->inherited = false;
	for (int i = e->nours - 1; i >= 0; i--) {
		struct member *m = e->ours[i];
		struct conn *c = m->set ? NULL : conn_get(m->fd);
		if (m->set) {
			epset_more(m->set);
		} else if (c != m->c) { // closed here
			if (c)
				conn_put(c);
			member_remove(e, m);
			m->ours = false;
			member_free(e, m);
			continue;
		}
		member_join(e, m);
	}
}

bool epset_engage(struct conn *c, int fd, enum reason *why)
{
	enum { PATIENCE = 100 };
	bool ok = true;
	// The connection's locks are held, which elsewhere are taken after those of
	// sets: never wait for one.
	for (struct epset *e = sets; e && ok; e = e->next) {
		if (!has(e, c, fd))
			continue;
		int tries = 0;
		while (!(ok = epset_trylock(e)) && tries++ < PATIENCE)
			clock_pause();
		if (ok)
			e->engaging = c;
	}
	for (struct epset *e = sets; e && ok; e = e->next)
		ok = e->engaging != c || member_engage(e, c, why);
	for (struct epset *e = sets; e; e = e->next) {
		if (e->engaging != c)
			continue;
		for (int i = e->nours - 1; i >= 0 && !ok; i--)
			if (e->ours[i]->c == c)
				member_give(e, e->ours[i]);
		e->engaging = NULL;
		oneshot_open(e);
		epset_unlock(e);
	}
	return ok;
}

static int fail(int e)
{
	errno = e;
	return -1;
}

static int add(struct epset *e, int epfd, int fd, struct conn *c, struct epset *set, struct epoll_event *ev)
{
	enum { EXCLUSIVE_WITH = EPOLLIN | EPOLLOUT | EPOLLERR | EPOLLHUP | EPOLLWAKEUP | EPOLLET | EPOLLEXCLUSIVE };
	if (ev->events & EPOLLEXCLUSIVE && (set || ev->events & ~(uint32_t)EXCLUSIVE_WITH))
		return fail(EINVAL);
	struct member *m = member_at(e, fd);
	bool fresh = !m;
	if (m && m->ours && m->deleted) { // all is as before, but the program's wishes
		if (!member_revive(e, m, ev))
			return fail(ENOMEM);
		e->deleted--;
		return 0;
	}
	if (m && (m->ours || m->absent))
		return fail(EEXIST);
	// It is in the table before the state is asked for. Who engages sets the state
	// before it looks into the table (has): one of both sees the other.
	if (fresh && !(m = member_add(e, fd, ev)))
		return fail(ENOMEM);
	m->c = c;
	m->set = set;
	int why = 0;
	if (fresh && (set || conn_decided(c))) {
		if (!member_own(e, m, false))
			why = errno;
	} else if (real.epoll_ctl(epfd, EPOLL_CTL_ADD, fd, ev) < 0) {
		why = errno;
	} else {
		m->events = ev->events;
		m->data = ev->data;
	}
	if (why && fresh)
		member_free(e, m);
	return why ? fail(why) : 0;
}

static int modify(struct epset *e, int epfd, int fd, struct epoll_event *ev)
{
	struct member *m = member_at(e, fd);
	int r;
	if (m && m->deleted)
		return fail(ENOENT);
	if (m && m->ours) {
		if ((m->events | ev->events) & EPOLLEXCLUSIVE)
			return fail(EINVAL);
		member_ask(m, ev);
		e->news++;
		marks_heat(e, m);
		if (e->sleepers > 0)
			epset_wake(e);
		return 0;
	}
	r = real.epoll_ctl(epfd, m && m->absent ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, ev);
	if (r == 0 && m) {
		m->absent = false;
		m->events = ev->events;
		m->data = ev->data;
	}
	return r;
}

static int delete(struct epset *e, int epfd, int fd, struct epoll_event *ev)
{
	struct member *m = member_at(e, fd);
	if (m && m->deleted)
		return fail(ENOENT);
	if (m && m->set) {
		drop(e, m);
		return 0;
	}
	if (m && m->ours) {
		member_remove(e, m);
		m->deleted = true;
		e->deleted++;
		return 0;
	}
	int r = m && m->absent ? 0 : real.epoll_ctl(epfd, EPOLL_CTL_DEL, fd, ev);
	if (r == 0 && m)
		member_free(e, m);
	return r;
}

// renumber: a copy of the connection has got the number that it was added by, which
// had been closed. To the kernel it is the same member.
static void renumber(struct epset *e, struct conn *c, int fd)
{
	for (int i = 0; i < e->nours; i++) {
		if (e->ours[i]->c == c && e->ours[i]->key == fd)
			move(e, e->ours[i], fd);
	}
}

static int by_op(struct epset *e, int epfd, int op, int fd, struct conn *c, struct epset *set, struct epoll_event *ev)
{
	return op == EPOLL_CTL_ADD   ? add(e, epfd, fd, c, set, ev)
	       : op == EPOLL_CTL_MOD ? modify(e, epfd, fd, ev)
	       : op == EPOLL_CTL_DEL ? delete(e, epfd, fd, ev)
				     : real.epoll_ctl(epfd, op, fd, ev);
}

// again is for a connection that is ours already: as a member it has a use, so the call
// needs none. False: it is not, or may not be.
static bool again(struct epset *e, int epfd, int op, int fd, struct epoll_event *ev, int *r)
{
	if (e->nours + e->deleted == 0 || !files_conn(fd) || (!ev && op != EPOLL_CTL_DEL) || !epset_lock(e))
		return false;
	struct member *m = member_at(e, fd);
	bool is = m && m->ours && m->c && m->c == files_conn(fd) && !e->inherited;
	if (is)
		*r = by_op(e, epfd, op, fd, NULL, NULL, ev);
	epset_unlock(e);
	return is;
}

void epset_waited(struct epset *e)
{
	if (!epset_lock(e))
		return;
	for (int i = 0; i < e->cap; i++) {
		struct conn *c = e->by_fd[i] ? files_conn(i) : NULL;
		if (c)
			atomic_store_explicit(&c->watched, true, memory_order_relaxed);
	}
	e->waited = true;
	epset_unlock(e);
}

int epset_ctl(struct epset *e, int epfd, int op, int fd, struct epoll_event *ev)
{
	int r;
	if (again(e, epfd, op, fd, ev, &r))
		return r;
	struct conn *c = conn_get(fd);
	struct epset *set = c ? NULL : epset_get(fd);
	bool renumbers = c && c->refs > 1 && !member_at(e, fd) && moving(e, c, fd);
	if (files_ours(fd)) {
		r = fail(EBADF);
	} else if ((!c && !set) || set == e || (!ev && op != EPOLL_CTL_DEL) || !epset_lock(e)) {
		r = real.epoll_ctl(epfd, op, fd, ev);
	} else {
		if (e->inherited)
			epset_adopt(e);
		if (c && e->waited && !c->watched)
			atomic_store_explicit(&c->watched, true, memory_order_relaxed);
		if (renumbers)
			renumber(e, c, fd);
		r = by_op(e, epfd, op, fd, c, set, ev);
		epset_unlock(e);
	}
	if (c)
		conn_put(c);
	if (set)
		epset_put(set);
	return r;
}

void epset_flush(struct epset *e)
{
	for (int i = 0; i < e->cap && e->deleted > 0; i++)
		if (e->by_fd[i] && e->by_fd[i]->deleted) {
			e->deleted--;
			drop(e, e->by_fd[i]);
		}
	marks_gather(e);
	for (int i = e->nhot - 1; i >= 0; i--) {
		struct conn *c = e->hot[i]->c;
		// While another thread is engaging it, its members are ours already.
		uint32_t state = c ? atomic_load(&c->state) : CONN_ENGAGED;
		if (state != CONN_ENGAGED && state != CONN_ENGAGING)
			member_give(e, e->hot[i]);
	}
}
