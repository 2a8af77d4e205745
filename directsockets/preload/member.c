// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A member that is ours is an engaged connection, or a set. Its readiness as the
// program sees it is computed here:
//
//	level      what stream_ready says now
//	edge       the same, but only after something new: a slot posted since the
//	           last report, an event of the kernel, room after a write that
//	           found none, SO_RCVLOWAT, or EPOLL_CTL_ADD/MOD
//	one-shot   once, until EPOLL_CTL_MOD
//
// The kernel's part is its TCP socket in the perch, IN|OUT|RDHUP|PRI|EPOLLET: one
// event per change, which sets a flag (rx_hint), and never keeps us from sleeping.
//
// It becomes ours in this order: the perch watches the socket, the peer is asked
// to ring, it is in the list, the kernel's set loses it. What happens meanwhile is
// seen by the next look: nobody sleeps without one.
#include "real.h"

#include "member.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>

#include "channel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "files.h"
#include "marks.h"
#include "oneshot.h"
#include "stream.h"
#include "transmit.h"

static bool insert(struct epset *e, struct member *m)
{
	if (e->nours == e->ours_cap) {
		int cap = e->ours_cap ? 2 * e->ours_cap : 16;
		struct member **grown = realloc(e->ours, sizeof *grown * (size_t)cap);
		if (!grown)
			return false;
		e->ours = grown;
		if (!(grown = realloc(e->hot, sizeof *grown * (size_t)cap)))
			return false;
		e->hot = grown;
		struct found *found = realloc(e->found, sizeof *found * (size_t)cap);
		if (!found)
			return false;
		e->found = found;
		e->ours_cap = cap;
	}
	m->at = e->nours;
	e->ours[e->nours++] = m;
	m->hot_at = e->nhot;
	e->hot[e->nhot++] = m;
	m->marks = NULL;
	m->asked = m->cold = false;
	m->quiet = e->waits;
	return true;
}

void member_remove(struct epset *e, struct member *m)
{
	marks_forget(e, m);
	struct member *last = e->ours[--e->nours];
	e->ours[m->at] = last;
	last->at = m->at;
	if (e->last == m->c)
		e->last = NULL;
}

struct member *member_add(struct epset *e, int fd, const struct epoll_event *ev)
{
	int cap = e->cap;
	if (fd >= cap) {
		if (cap == 0)
			cap = 64;
		while (cap <= fd)
			cap *= 2;
		struct member *_Atomic *grown = calloc((size_t)cap, sizeof *grown);
		if (!grown)
			return NULL;
		for (int i = 0; i < e->cap; i++)
			grown[i] = e->by_fd[i];
		e->by_fd = grown;
		e->cap = cap;
	}
	struct member *m = e->spare ? e->spare : malloc(sizeof *m);
	if (!m)
		return NULL;
	e->spare = NULL;
	*m = (struct member){.fd = fd, .key = fd, .events = ev->events, .data = ev->data};
	// Before the state of the connection is asked for: see add.
	atomic_store_explicit(&e->by_fd[fd], m, single_thread() ? memory_order_relaxed : memory_order_seq_cst);
	return m;
}

void member_free(struct epset *e, struct member *m)
{
	if (m->ours && !m->deleted)
		member_remove(e, m);
	if (m->ours && m->set && !e->inherited)
		epset_put(m->set);
	else if (m->ours && !e->inherited)
		conn_put(m->c);
	if (member_at(e, m->fd) == m)
		atomic_store_explicit(&e->by_fd[m->fd], NULL, memory_order_release);
	if (e->spare)
		free(m);
	else
		e->spare = m;
}

// always is a descriptor that is ready for ever.
static int always(void)
{
	static _Atomic int fd = -1;
	if (fd < 0) {
		int new = doorbell_make(), none = -1;
		if (new >= 0 && !atomic_compare_exchange_strong(&fd, &none, new))
			files_close(new);
	}
	return fd;
}

void member_kick(struct epset *e)
{
	struct epoll_event ev = {.events = EPOLLIN, .data.ptr = e};
	if (e->kicked || e->native == 0)
		return;
	e->kicked_ns = clock_ns();
	e->kicked = true; // before anyone can see the event
	if (real.epoll_ctl(e->epfd, EPOLL_CTL_ADD, always(), &ev) < 0)
		e->kicked = false;
}

int epset_without_kick(const struct epset *e, struct epoll_event *evs, int n)
{
	int kept = 0;
	for (int i = 0; i < n; i++)
		if (evs[i].data.ptr != e)
			evs[kept++] = evs[i];
	return kept;
}

void epset_unkick(struct epset *e)
{
	int saved = errno;
	if (!e->kicked || e->native > 0 || !epset_lock(e))
		return;
	if (e->kicked && atomic_load(&e->native) == 0) {
		real.epoll_ctl(e->epfd, EPOLL_CTL_DEL, always(), NULL);
		e->kicked = false;
	}
	epset_unlock(e);
	errno = saved;
}

void epset_wake(struct epset *e)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.u64 = (uint64_t)PERCH_WAKE << 32};
	int saved = errno;
	if (e->perch && real.epoll_ctl(e->perch->epfd, EPOLL_CTL_MOD, always(), &ev) < 0)
		real.epoll_ctl(e->perch->epfd, EPOLL_CTL_ADD, always(), &ev);
	errno = saved;
}

// rouse: there is one more member that is ours, which nobody who sleeps knows of.
static void rouse(struct epset *e)
{
	member_kick(e);
	if (e->sleepers > 0)
		epset_wake(e);
}

static void hurry(struct epset *e, uint64_t ns)
{
	if (ns < e->patience)
		e->patience = ns;
}

// want_room has the peer ring for a member for which there is no room. Our epoch is odd by
// then: of who fills a lane in the meantime (doorbell_rouse) the next look sees that it is
// full, or somebody who sleeps is woken.
static void want_room(struct epset *e, struct member *m)
{
	if (!(m->events & EPOLLOUT) || stream_room(m->c))
		return;
	int line = e->perch ? perch_line(e->perch, m->c->channel) : -1;
	if (line < 0)
		return;
	if (!(m->events & EPOLLET))
		tx_asked(m->c);
	m->starving = true;
	hurry(e, tx_patience(m->c));
	lane_ask(&m->c->tx);
	doorbell_watch(&m->c->own->tx_waiters, e->perch->line[line].w);
}

// arm_lines arms or disarms for all channels of a set. Of some it has no member any more.
static void arm_lines(struct perch *p, bool any)
{
	_Atomic uint32_t *stripe = doorbell_touch(p);
	for (int i = 0; i < p->lines; i++) {
		struct line *l = &p->line[i];
		if (!l->ch || l->ch->serial != l->serial)
			continue;
		if (any)
			doorbell_arm(l->own, l->w);
		else
			doorbell_disarm(l->ch, l->own, l->w);
	}
	doorbell_touched(stripe);
}

void epset_arm_by(struct epset *e, int n)
{
	if (n > 0)
		epset_flush(e);
	int sleepers = e->sleepers + n;
	e->sleepers = sleepers > 0 ? sleepers : 0; // see single_drop
	bool any = sleepers > 0;
	e->patience = ~0ull;
	if (e->perch)
		arm_lines(e->perch, any);
	for (int i = 0; i < e->nhot; i++) { // who waits for room is hot
		struct member *m = e->hot[i];
		if (m->set) {
			if (!epset_lock(m->set))
				continue;
			epset_arm_by(m->set, n);
			hurry(e, m->set->patience);
			if (n < 0 && m->set->sleepers > 0)
				epset_wake(m->set); // we took what woke us from others
			epset_unlock(m->set);
		} else if (any) {
			if (n > 0)
				stream_heed(m->c, m->fd);
			want_room(e, m);
		} else if (m->starving) {
			m->starving = false;
			int l = e->perch ? perch_line(e->perch, m->c->channel) : -1;
			if (l >= 0)
				doorbell_unwatch(m->c->channel, &m->c->own->tx_waiters, e->perch->line[l].w);
		}
	}
	atomic_thread_fence(memory_order_seq_cst); // before the second look
}

static bool perch_of(struct epset *e)
{
	if (e->perch)
		return true;
	struct perch *p = perch_new();
	if (p && !perch_watch(p, PERCH_SET, 0, e->epfd, EPOLLIN)) {
		perch_free(p);
		p = NULL;
	}
	e->perch = p;
	return p;
}

// join_set watches a set in the set. False and errno: impossible.
static bool join_set(struct epset *e, struct member *m)
{
	bool ok = false;
	if (!epset_lock(m->set)) {
		errno = EBUSY;
		return false;
	}
	if (m->set->inherited)
		epset_adopt(m->set);
	if (perch_of(e) && perch_of(m->set)) {
		ok = perch_watch(e->perch, PERCH_NEST, m->fd, m->set->perch->epfd, EPOLLIN | EPOLLET);
		if (ok)
			epset_arm_by(m->set, e->sleepers);
	}
	epset_unlock(m->set);
	m->kernel = true;
	return ok;
}

int epset_watch(struct epset *e)
{
	if (!epset_lock(e))
		return -1;
	if (e->inherited)
		epset_adopt(e);
	int fd = perch_of(e) ? e->perch->epfd : -1;
	epset_unlock(e);
	return fd;
}

void member_part(struct epset *e, struct member *m)
{
	if (!epset_lock(m->set))
		return;
	if (e->perch && m->set->perch) {
		perch_ignore(e->perch, m->set->perch->epfd);
		epset_arm_by(m->set, -e->sleepers);
	}
	epset_unlock(m->set);
}

static void join_lane(struct epset *e, struct member *m)
{
	struct conn *c = m->c;
	int line = perch_of(e) ? perch_line(e->perch, c->channel) : -1;
	if (line < 0 || !perch_watch(e->perch, PERCH_SOCKET, m->fd, m->fd, MEMBER_HINTS))
		e->poor = true;
	if (line < 0)
		return;
	doorbell_watch(&c->own->rx_waiters, e->perch->line[line].w);
	if (e->sleepers > 0) {
		doorbell_arm(e->perch->line[line].own, e->perch->line[line].w);
		epset_wake(e);
	}
}

void member_join(struct epset *e, struct member *m)
{
	if (m->set)
		join_set(e, m);
	else
		join_lane(e, m);
}

void member_ignore(struct epset *e, const struct member *m)
{
	for (int i = 0; i < e->nours && e->moved; i++)
		if (e->ours[i] != m && e->ours[i]->c && e->ours[i]->fd == m->fd)
			return;
	if (e->perch)
		perch_ignore(e->perch, m->fd);
}

void member_unwatch(struct epset *e, struct member *m)
{
	struct conn *c = m->c;
	int line = e->perch && c->own ? perch_line(e->perch, c->channel) : -1;
	member_ignore(e, m);
	for (int i = 0; i < e->nours && (c->refs > 1 || e->moved); i++)
		if (e->ours[i] != m && e->ours[i]->c == c)
			return;
	if (line < 0)
		return;
	doorbell_unwatch(c->channel, &c->own->rx_waiters, e->perch->line[line].w);
	if (m->starving)
		doorbell_unwatch(c->channel, &c->own->tx_waiters, e->perch->line[line].w);
}

// edge_due: may an EPOLLOUT edge of this member still be to come from the kernel?
// Either the socket is not writable now, or the kernel holds events that nobody
// has fetched, one of which may be it. It cannot be asked about one member.
static bool edge_due(const struct epset *e, const struct member *m)
{
	struct pollfd p[2] = {{m->fd, POLLOUT, 0}, {e->epfd, POLLIN, 0}};
	return real.poll(p, 2, 0) < 0 || !p[0].revents || p[1].revents;
}

HINT bool member_own(struct epset *e, struct member *m, bool from_kernel)
{
	// After ADD the first EPOLLOUT is news whenever it comes.
	bool due = !from_kernel || (m->events & EPOLLET && m->events & EPOLLOUT && edge_due(e, m));
	if (!insert(e, m))
		return false;
	if (m->set && !join_set(e, m)) {
		int saved = errno;
		member_remove(e, m);
		errno = saved;
		return false;
	}
	if (m->set) {
		epset_more(m->set);
	} else {
		conn_more(m->c);
		m->seen = m->c->rx.slot;
		m->turns = m->c->rx.turns;
		m->tcp_seen = m->c->tcp_rx;
		m->starved = m->c->starved - due;
		m->shutdowns = m->c->shutdowns;
		m->lowats = m->c->lowats;
		join_lane(e, m);
	}
	m->ours = true;
	m->edge = !from_kernel;
	e->news += !from_kernel;
	e->joins++;
	if (from_kernel)
		real.epoll_ctl(e->epfd, EPOLL_CTL_DEL, m->fd, NULL);
	rouse(e);
	return true;
}

bool member_engage(struct epset *e, struct conn *c, enum reason *why)
{
	for (int i = 0; i < e->cap; i++) {
		struct member *m = e->by_fd[i];
		int unread = 0;
		if (!m || m->c != c || m->ours)
			continue;
		if (e->shared) {
			*why = REASON_NESTED;
			return false;
		}
		if (m->events & EPOLLONESHOT) {
			if (!oneshot_own(e, m, why))
				return false;
			continue;
		}
		if (m->events & EPOLLET && (real.ioctl(i, FIONREAD, &unread) < 0 || unread))
			return false; // an edge for these bytes may be on its way
		if (!member_own(e, m, true)) {
			*why = REASON_MEMORY;
			return false;
		}
	}
	return true;
}

bool member_revive(struct epset *e, struct member *m, const struct epoll_event *ev)
{
	if (!insert(e, m))
		return false;
	if (e->moved && e->perch && m->c)
		perch_watch(e->perch, PERCH_SOCKET, m->fd, m->fd, MEMBER_HINTS);
	m->deleted = false;
	m->last = 0;
	member_ask(m, ev);
	e->news++;
	rouse(e);
	return true;
}

void member_give(struct epset *e, struct member *m)
{
	struct epoll_event ev = {.events = m->events, .data = m->data};
	struct conn *c = m->c;
	member_remove(e, m);
	member_unwatch(e, m);
	if (m->fd != m->key && files_conn(m->key) == c && !member_at(e, m->key)) // by dup2, and so the kernel has it
		e->by_fd[m->fd = m->key] = m;
	m->ours = false;
	m->absent = m->disabled;
	if (!m->absent && real.epoll_ctl(e->epfd, EPOLL_CTL_ADD, m->fd, &ev) < 0 &&
	    (errno != EEXIST || m->fd != m->key || real.epoll_ctl(e->epfd, EPOLL_CTL_MOD, m->fd, &ev) < 0))
		conn_log(c, "is lost to an epoll set");
	if (member_at(e, m->fd) != m)
		free(m); // its own number is closed
	if (!e->inherited)
		conn_put(c);
}

void member_ask(struct member *m, const struct epoll_event *ev)
{
	m->events = ev->events;
	m->data = ev->data;
	m->disabled = false;
	m->edge = true;
	if (m->c)
		m->starved = m->c->starved - 1;
}

// stamp changes with all that is news of a set's own members: what its lanes bring, room
// after a write that found none, what the program asks for anew. The lock is held.
HINT static uint64_t stamp(struct epset *e)
{
	enum { APART = 1000003 }; // what is counted here and there does not make up for each other
	uint64_t sum = e->news * (uint64_t)APART * APART;
	for (int i = 0; i < e->nours; i++) {
		struct member *m = e->ours[i];
		if (m->set && epset_lock(m->set)) {
			sum += stamp(m->set);
			epset_unlock(m->set);
		} else if (m->c) {
			uint64_t at = m->c->rx.slot, turns = m->c->rx.turns;
			lane_news(&m->c->rx, &at, &turns);
			sum += at;
			if (m->events & EPOLLOUT && stream_room(m->c))
				sum += m->c->starved * (uint64_t)APART;
		}
	}
	return sum;
}

static uint32_t set_due(struct member *m, bool take)
{
	struct epset *e = m->set;
	bool ready = false, fresh = m->edge || m->kernel;
	uint64_t now = m->seen;
	if (m->kernel) {
		struct pollfd p = {e->epfd, POLLIN, 0};
		ready = real.poll(&p, 1, 0) > 0;
	}
	bool kernel = ready;
	ready |= epset_peek(e);
	if (m->events & EPOLLET && epset_lock(e)) {
		now = stamp(e);
		fresh |= now != m->seen;
		epset_unlock(e);
	}
	bool due = ready && (fresh || !(m->events & EPOLLET));
	if (take) {
		m->edge = false;
		m->kernel = kernel && !(m->events & EPOLLET);
		// Else the stamp may have what came behind the peek, or whose mark is still to come.
		if (due)
			m->seen = now;
	}
	return due ? EPOLLIN & m->events : 0;
}

uint32_t member_tcp_here(const struct member *m)
{
	int n = 0;
	return real.ioctl(m->fd, FIONREAD, &n) == 0 && n > 0 ? (uint32_t)n : 0;
}

HINT uint32_t member_due(struct member *m, bool take)
{
	struct conn *c = m->c;
	uint32_t want = m->events & (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI);
	if (m->disabled)
		return 0;
	if (m->set)
		return set_due(m, take);
	if (!(m->events & EPOLLET))
		return stream_glance(c, want) ? stream_ready(c, m->fd, want) : 0;
	uint64_t at = m->seen, turns = m->turns;
	uint32_t lowats = c->lowats;
	if (!m->edge && !m->kernel && lowats == m->lowats && c->rx.slot <= at && !lane_valid(&c->rx, at) &&
	    !(want & EPOLLOUT && c->starved != m->starved))
		return 0;
	// What came concerns only who wants to read, as in the kernel.
	bool fresh = lane_news(&c->rx, &at, &turns) && want & (EPOLLIN | EPOLLPRI);
	// What TCP brings behind BACK, bytes or the end, is news before the lane has been read up to there.
	fresh |= m->edge || (m->kernel && (c->rx_mode == MODE_TCP || lane_last(&c->rx, at, TAG_BACK) || member_tcp_here(m)));
	uint32_t starved = c->starved, r = stream_ready(c, m->fd, want);
	bool room = r & EPOLLOUT && starved != m->starved;
	// In LANE mode the kernel repeats what SHUTDOWN or ABORT said before.
	fresh |= room || (lowats != m->lowats && r & EPOLLIN) || (m->kernel && r & ~m->last & ~(uint32_t)EPOLLOUT);
	if (c->dead && !(r & ~m->last))
		fresh = false;
	if (take) {
		m->edge = m->kernel = false;
		m->seen = at;
		m->turns = turns;
		m->lowats = lowats;
		m->tcp_seen = c->tcp_rx + (c->rx_mode == MODE_TCP ? member_tcp_here(m) : 0);
		if (room)
			m->starved = starved;
		if (r && fresh) {
			m->last = r;
			// The kernel tells of it again, maybe before the bytes in front of it are read. It is
			// the last that a lane ever has, so nobody takes it for another.
			m->ended |= want & EPOLLIN && !(want & ~r & EPOLLRDHUP) && lane_last(&c->rx, at, TAG_SHUTDOWN);
		}
	}
	return fresh ? r : 0;
}
