// SPDX-License-Identifier: Apache-2.0
//
// epoll_wait on a set with members that are ours: look at them, spin, sleep on the
// perch. The picture is in epset.c.
//
// Several threads on a set: what the perch has to tell it tells once, also to who only
// asks. So who has taken something there while others sleep arms anew for them and then
// looks, or has one of them look (ask; the model is "beside"). Who is told of a level
// has the next be told, as the kernel does.
#include "real.h"

#include "member.h"

#include <errno.h>
#include <limits.h>

#include "channel.h"
#include "clock.h"
#include "conn.h"
#include "crowd.h"
#include "doorbell.h"
#include "files.h"
#include "marks.h"
#include "oneshot.h"
#include "rendezvous.h"
#include "sleep.h"
#include "stream.h"

#define KERNEL_BUSY_NS 50000 // the kernel is asked this often while lanes are busy
#define KERNEL_SPIN_NS 10000 // and this often while spinning
#define KERNEL_FRESH_NS 10000000 // so long after it had something, each time: what came by TCP came before, most likely
#define POOR_NS 1000000      // and this often when the perch cannot tell
#define AHEAD 6              // a slot takes as long to come as so many looks
#define AGAIN (-2)           // the set has changed: wait in the other way

// by_age sorts what was found, for the kernel tells events in the order in which they came. Those that were told
// in an order are looked at in it the next time, and mostly come in it again, or in the opposite one: who answers
// the last first has them so.
static void by_age(struct found *f, int n)
{
	static const int gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
	int falls = 0;
	for (int i = 1; i < n; i++)
		falls += f[i - 1].key > f[i].key;
	for (int i = 0, k = n - 1; 2 * falls >= n && i < k; i++, k--) {
		uint64_t key = f[i].key;
		f[i].key = f[k].key;
		f[k].key = key;
	}
	if (falls == 0 || falls == n - 1)
		return;
	for (unsigned g = 0; g < sizeof gaps / sizeof *gaps; g++) {
		for (int gap = gaps[g], i = gap; i < n; i++) {
			uint64_t key = f[i].key;
			int k = i;
			for (; k >= gap && f[k - gap].key > key; k -= gap)
				f[k].key = f[k - gap].key;
			f[k].key = key;
		}
	}
}

// scan looks at our members: readiness as the program wants it. Lock held.
static int scan(struct epset *e, struct epoll_event *evs, int max)
{
	int n = 0;
	uint64_t now = 0;
	struct found *f = e->found;
	struct conn *before = NULL;
	marks_gather(e);
	unsigned count = (unsigned)e->nhot, first = count ? e->start % count : 0;
	for (unsigned k = 0; k < count && n < max; k++) {
		unsigned at = first + k < count ? first + k : first + k - count;
		struct member *m = e->hot[at], *next = e->hot[at + AHEAD < count ? at + AHEAD : 0];
		if (next->c)
			lane_expect(&next->c->rx);
		uint32_t r = member_due(m, true);
		if (!r)
			continue;
		m->quiet = e->waits;
		now = now ? now : clock_ticks();
		if (m->c && r & EPOLLIN)
			stream_told(m->c, now);
		uint32_t age = m->c ? lane_age(&m->c->rx, lane_date(now)) : 0;
		f[n] = (struct found){(uint64_t)~age << 32 | (uint32_t)n, m, at, {.events = r, .data = m->data}};
		n++;
		if (m->events & EPOLLONESHOT)
			m->disabled = true;
		else if (!(m->events & EPOLLET) && !atomic_load_explicit(&e->level, memory_order_relaxed))
			atomic_store_explicit(&e->level, true, memory_order_relaxed); // seldom: a store for each event would be dear
		if (n == max)
			e->start = first + k + 1;
	}
	by_age(f, n);
	for (int i = 0; i < n; i++) {
		const struct found *is = &f[(uint32_t)f[i].key];
		evs[i] = is->event;
		e->hot[f[i].at] = is->m;
		is->m->hot_at = (int)f[i].at;
		struct conn *c = is->m->c;
		if (!c)
			continue;
		if (before) // the program reads in this order
			atomic_store_explicit(&before->ahead, lane_next(&c->rx), memory_order_relaxed);
		before = e->last = c;
	}
	return n;
}

static int look(struct epset *e, struct epoll_event *evs, int max)
{
	if (e->nours == 0 || !epset_lock(e))
		return 0;
	int n = scan(e, evs, max);
	epset_unlock(e);
	return n;
}

// twice: one of the k events that the kernel has just given may be of a descriptor that
// became ours since, by another thread. Its readiness must not be told again beside it:
// who has read after the first event would find nothing after the second. Ours are told
// by the next call. Lock held.
static bool twice(const struct epset *e, int k, uint32_t joins) { return k > 0 && e->joins != joins; }

// look_first also says where we run, and whether the peer runs there too. Of evs the
// first k are the kernel's, asked when the set had been joined so often.
static int look_first(struct epset *e, struct epoll_event *evs, int max, int k, uint32_t joins, bool *near)
{
	*near = true;
	if (e->nours == 0 || !epset_lock(e))
		return 0;
	if (e->last)
		channel_ran(e->last->channel);
	marks_chill(e);
	int n = twice(e, k, joins) ? 0 : scan(e, evs + k, max - k);
	*near = e->last && channel_near(e->last->channel);
	epset_unlock(e);
	return n;
}

// fin_arrived: the peer has acknowledged our FIN.
static bool fin_arrived(const struct member *m)
{
	enum tcp_state s = conn_tcp_state(m->fd);
	return s != FIN_WAIT1 && s != LAST_ACK && s != CLOSING;
}

// hint_to notes that an event of the kernel concerns a member.
static void hint_to(struct epset *e, struct member *m, bool ended, uint32_t news)
{
	e->news++;
	marks_heat(e, m);
	atomic_store(&m->c->rx_hint, 1);
	// Behind our own shutdown of reading bytes may come, and FIN, which is news then.
	bool shut = m->c->rx_shut && !ended;
	if (shut && !conn_fin_came(m->fd))
		news &= ~(uint32_t)EPOLLRDHUP;
	// Bytes concern who wants to read, an end concerns all, once. What TCP brought
	// may have been read before we heard of it.
	uint32_t end = news & (EPOLLRDHUP | EPOLLHUP | EPOLLERR), known = end & (m->heard | (m->ended ? EPOLLRDHUP : 0u));
	bool old = m->moved && !ended && m->c->tcp_rx + member_tcp_here(m) == m->tcp_seen;
	// Nothing comes behind an end that was heard of: the kernel says one twice.
	old |= end && end == known;
	m->kernel |= ended || (news & ~end & m->events && !old) || end != known;
	// To who asks for room only the lane has told no end.
	m->edge |= end != known && (shut || !(m->events & (EPOLLIN | EPOLLRDHUP | EPOLLPRI)));
	if (!ended) {
		m->heard = end;
		m->moved = false;
	}
	m->kernel |= m->events & EPOLLIN && m->c->tcp_rx > m->tcp_seen;
	// TCP says all anew when our FIN is acknowledged.
	if (m->c->tx_shut && !m->fin_told && !m->c->rx_fin && !m->c->rx_eof && !m->c->dead && fin_arrived(m))
		m->edge = m->fin_told = true;
	// A reset after both ends had shut down is nothing new if its error is gone by now.
	bool over = end & EPOLLHUP && !m->over && conn_tcp_state(m->fd) == CLOSED;
	m->edge |= over && known & EPOLLHUP;
	m->over |= over;
	m->edge |= m->c->shutdowns != m->shutdowns;
	m->shutdowns = m->c->shutdowns;
}

// hint is for the members that an event of the kernel concerns: of a channel that has
// ended, or of a socket by one of its descriptors.
static void hint(struct epset *e, const struct channel *ended, int fd, uint32_t news)
{
	struct member *by_fd = ended ? NULL : member_at(e, fd);
	if (by_fd && by_fd->ours && by_fd->c && by_fd->fd == fd && by_fd->c->refs == 1 && !e->moved) {
		hint_to(e, by_fd, false, news);
		return;
	}
	for (int i = 0; i < e->nours; i++) {
		struct member *m = e->ours[i];
		if (m->c && (ended ? m->c->channel == ended : m->fd == fd))
			hint_to(e, m, ended, news);
	}
}

// handle evaluates what came to the perch; true: also the kernel's set has
// something. Lock held.
static bool handle(struct epset *e, const struct epoll_event *got, int n, bool dozing)
{
	bool kernel = false;
	for (int i = 0; i < n; i++) {
		int about = perch_about(&got[i]);
		struct member *m;
		struct channel *ended;
		switch (perch_kind(&got[i])) {
		case PERCH_SET:
			kernel = true;
			e->fresh_ns = clock_ns();
			break;
		case PERCH_SOCKET:
			e->fresh_ns = clock_ns();
			hint(e, NULL, about, got[i].events & ~(uint32_t)(EPOLLOUT | EPOLLWRNORM));
			break;
		case PERCH_NEST:
			if ((m = member_at(e, about)) && m->set)
				m->kernel |= epset_harvest(m->set, dozing);
			break;
		case PERCH_HANGUP:
		case PERCH_BELL:
			if ((ended = perch_event(e->perch, &got[i])))
				hint(e, ended, -1, 0);
			break;
		case PERCH_WAKE:
			break;
		}
	}
	return kernel;
}

static int native(int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask)
{
	if (timeout > 0 && timeout % 1000000) {
		struct timespec t = {timeout / 1000000000, timeout % 1000000000};
		if (real.epoll_pwait2) {
			int n = real.epoll_pwait2(epfd, evs, max, &t, mask);
			if (n >= 0 || errno != ENOSYS)
				return n;
		}
		timeout += 999999;
	}
	int64_t ms = timeout < 0 ? -1 : timeout / 1000000;
	int most = ms > INT_MAX ? INT_MAX : (int)ms;
	return mask ? real.epoll_pwait(epfd, evs, max, most, mask) : real.epoll_wait(epfd, evs, max, most);
}

// take takes events out of the program's set in the kernel. AGAIN: only what got us out
// of there.
static int take(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask)
{
	if (!oneshot_enter(e)) {
		errno = EINTR;
		return -1;
	}
	int n = native(epfd, evs, max, timeout, mask);
	oneshot_leave(e);
	// It may be among the events of a thread that has not looked at them when all are
	// out and it is taken away: so it is looked for ever after.
	int kept = n > 0 && e->kicked_ns ? epset_without_kick(e, evs, n) : n;
	return n > 0 && kept == 0 ? AGAIN : kept;
}

// fetch takes what is there.
static int fetch(struct epset *e, int epfd, struct epoll_event *evs, int max)
{
	enum { TRIES = 8 };
	int n = AGAIN;
	for (int tries = 0; n == AGAIN && tries < TRIES; tries++) { // with max = 1 something else may be ready
		n = take(e, epfd, evs, max, 0, NULL);
		epset_unkick(e);
	}
	return n == AGAIN ? 0 : n;
}

// ask sleeps on the perch, or only asks it. It returns the events of the
// kernel's set; what else came changes what our members say.
//
// What came is told to the perch once, and others may be asleep on it. So it is as if they
// had armed anew: our look, or that of who is woken, is theirs, and of all that comes later
// they are rung. Who sleeps here himself (doze) does so when he gets up.
static int ask(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask, bool dozing)
{
	struct epoll_event got[16];
	struct perch *p = e->perch; // goes only with the set
	if (e->poor && (timeout < 0 || timeout > POOR_NS))
		timeout = POOR_NS;
	int n = p ? native(p->epfd, got, 16, timeout, mask) : take(e, epfd, evs, max, timeout, mask);
	if (n < 0 || (n == 0 && !e->poor) || !epset_lock(e))
		return n;
	bool kernel = p && handle(e, got, n, dozing);
	for (int i = 0; i < e->nours && e->poor; i++) {
		if (e->ours[i]->c)
			atomic_store(&e->ours[i]->c->rx_hint, 1);
		e->ours[i]->kernel = true;
	}
	if (p && !dozing && e->sleepers > 0 && n > (int)kernel) {
		epset_arm_by(e, 0);
		if (kernel) // and then nobody looks
			epset_wake(e);
	}
	epset_unlock(e);
	return !p ? n : kernel ? fetch(e, epfd, evs, max) : 0;
}

bool epset_harvest(struct epset *e, bool dozing)
{
	struct epoll_event got[16];
	bool kernel = false;
	int saved = errno, n;
	while (e->perch && (n = real.epoll_pwait(e->perch->epfd, got, 16, 0, NULL)) > 0 && epset_lock(e)) {
		kernel |= handle(e, got, n, dozing);
		bool news = n > 1 || perch_kind(&got[0]) != PERCH_WAKE;
		if (!dozing && e->sleepers > 0) {
			epset_arm_by(e, 0);
			if (news) // of a wake-up alone, our own look is the one that was wanted
				epset_wake(e);
		}
		epset_unlock(e);
		if (n < 16)
			break;
	}
	errno = saved;
	return kernel;
}

void epset_yield(struct epset *e)
{
	if (!epset_lock(e))
		return;
	e->level = false;
	if (e->sleepers > 0)
		epset_wake(e);
	epset_unlock(e);
}

bool epset_peek(struct epset *e)
{
	bool due = false;
	if (!e->waited)
		epset_waited(e);
	if (e->nours == 0 || !epset_lock(e))
		return false;
	marks_gather(e);
	if (e->heated && e->sleepers > 0)
		epset_arm_by(e, 0); // who is hot now has to be armed too
	e->heated = false;
	for (int i = 0; i < e->nhot && !due; i++)
		due = member_due(e->hot[i], false) != 0;
	epset_unlock(e);
	return due;
}

void epset_arm(struct epset *e)
{
	if (!epset_lock(e))
		return;
	epset_arm_by(e, 1);
	epset_unlock(e);
}

void epset_disarm(struct epset *e)
{
	if (!epset_lock(e))
		return;
	epset_arm_by(e, -1);
	epset_unlock(e);
	epset_yield(e);
}

// doze sleeps until something may have come. AGAIN: the set has nothing of ours
// any more, and it might as well sleep natively.
static int doze(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t left, const sigset_t *mask)
{
	if (!epset_lock(e)) {
		errno = EINTR;
		return -1;
	}
	e->heated = false;
	epset_arm_by(e, 1);
	uint32_t joins = e->joins;
	int n = scan(e, evs, max); // the second look
	bool again = e->heated; // who is hot now has to be armed too
	if (left < 0 || (uint64_t)left > e->patience)
		left = (int64_t)e->patience; // ~0: no end
	epset_unlock(e);
	int k = n > 0 || again ? 0 : ask(e, epfd, evs, max, left, mask, true), saved = errno;
	if (!epset_lock(e))
		return k;
	epset_arm_by(e, -1);
	if (n == 0 && k >= 0 && k < max && !twice(e, k, joins))
		n = scan(e, evs + k, max - k);
	else if (k > 0 && k < max && e->sleepers > 0)
		epset_wake(e); // others look
	epset_unlock(e);
	errno = saved;
	return k < 0 ? k : n + k > 0 ? n + k : AGAIN;
}

// snooze sleeps in a crowd (crowd.c).
static int snooze(struct epset *e, int epfd, struct epoll_event *evs, int max, uint64_t now, uint64_t end, const sigset_t *mask)
{
	if (!epset_lock(e))
		return 0;
	uint64_t ns = crowd_snooze(&e->crowd, now, e->nhot);
	epset_unlock(e);
	if (!ns || now + ns >= end)
		return 0;
	int n = ask(e, epfd, evs, max, (int64_t)ns, mask, false);
	n = n != 0 ? n : look(e, evs, max);
	crowd_result(&e->crowd, n);
	return n;
}

static int interrupted(void)
{
	errno = EINTR;
	return -1;
}

// fresh: the kernel had something a moment ago. What it has now may be older than what a lane has, so it is asked
// before lanes are told.
static bool fresh(const struct epset *e, uint64_t now) { return now - e->fresh_ns < KERNEL_FRESH_NS; }

// watch is a look while we spin. AGAIN: something is there, but the kernel is to be asked.
static int watch(struct epset *e, struct epoll_event *evs, int max, bool fresh)
{
	return !fresh ? look(e, evs, max) : epset_peek(e) ? AGAIN : 0;
}

// spin looks for a while.
static int spin(struct epset *e, int epfd, struct epoll_event *evs, int max, uint64_t now, uint64_t end)
{
	uint64_t ns = spin_ns(&e->spin), begun = now, until = now + ns < end ? now + ns : end, next = now + KERNEL_SPIN_NS;
	uint32_t signals = sleep_signals;
	int n = 0;
	if (!ns)
		return 0;
	while (n == 0 && now < until) {
		now = spin_pass(begun, now);
		n = watch(e, evs, max, fresh(e, now));
		if (n == 0 && sleep_signals != signals)
			n = interrupted();
		if (n == 0 && now >= next) {
			n = ask(e, epfd, evs, max, 0, NULL, false);
			e->kernel_ns = now;
			next = now + KERNEL_SPIN_NS;
		}
	}
	spin_result(&e->spin, n > 0 || n == AGAIN);
	return n;
}

// meet lets peers run that are on our CPU.
static int meet(struct epset *e, struct epoll_event *evs, int max, bool fresh)
{
	uint32_t signals = sleep_signals;
	int n = 0;
	for (int i = 0; n == 0 && spin_near(i); i++) {
		n = watch(e, evs, max, fresh);
		if (n == 0 && sleep_signals != signals)
			n = interrupted();
	}
	return n;
}

static int wait_ours(struct epset *e, int epfd, struct epoll_event *evs, int max, uint64_t now, int64_t timeout, const sigset_t *mask)
{
	uint64_t end = timeout < 0 ? ~0ull : now + (uint64_t)timeout;
	// Members of the kernel that are always ready must not keep ours from being told.
	bool full = atomic_load_explicit(&e->full, memory_order_relaxed);
	bool due = now - e->kernel_ns > KERNEL_BUSY_NS || fresh(e, now);
	bool near, asked = !full && due && (timeout == 0 || epset_peek(e));
	if (full)
		atomic_store_explicit(&e->full, false, memory_order_relaxed);
	int k = 0;
	uint32_t joins = e->joins;
	if (asked && epset_lock(e)) { // before the look, which so knows of hang-ups
		epset_flush(e);
		epset_unlock(e);
		k = ask(e, epfd, evs, max, 0, NULL, false);
		e->kernel_ns = now;
		if (k == max)
			atomic_store_explicit(&e->full, true, memory_order_relaxed);
		if (k < 0 || k == max)
			return k;
	}
	int n = look_first(e, evs, max, k, joins, &near);
	if (n + k > 0)
		return n + k;
	if (timeout == 0) {
		if (asked)
			return 0;
		n = ask(e, epfd, evs, max, 0, NULL, false);
		e->kernel_ns = now;
		return n != 0 ? n : look(e, evs, max);
	}
	n = mask ? 0 : near ? meet(e, evs, max, fresh(e, now)) : spin(e, epfd, evs, max, now, end);
	if (n != 0)
		return n;
	n = snooze(e, epfd, evs, max, now, end, mask);
	now = clock_ns();
	if (n != 0) {
		e->kernel_ns = now;
		return n;
	}
	n = doze(e, epfd, evs, max, timeout < 0 ? -1 : now < end ? (int64_t)(end - now) : 0, mask);
	e->kernel_ns = clock_ns();
	return n;
}

static int wait_native(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask)
{
	if (timeout == 0)
		return fetch(e, epfd, evs, max);
	single_inc(&e->native, single_thread());
	int n = e->nours > 0 ? AGAIN : take(e, epfd, evs, max, timeout, mask);
	single_drop(&e->native, single_thread());
	epset_unkick(e);
	return n;
}

static void engage_members(struct epset *e)
{
	for (int i = 0; i < files_top() && i < e->cap; i++) {
		struct conn *c = files_conn(i);
		if (!c || c->state != CONN_ATTACHED || !(c = conn_get(i)))
			continue;
		if (e->hold)
			c->due = c->calls; // they wait for this
		if (c->state == CONN_ATTACHED)
			conn_try_engage(c, i);
		conn_put(c);
	}
}

int epset_wait(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask)
{
	if (max <= 0 || max > (int)(INT_MAX / sizeof *evs) || !evs)
		return native(epfd, evs, max, timeout, mask);
	if (e->inherited && epset_lock(e)) {
		epset_adopt(e);
		epset_unlock(e);
	}
	if (!e->waited)
		epset_waited(e);
	if (rendezvous_waiting)
		rendezvous_progress();
	struct sleep_again again = {.since = sleep_now()};
	for (;;) {
		if (conn_attached)
			engage_members(e);
		bool ours = e->nours > 0;
		uint64_t begun = ours ? clock_ns() : clock_ticks();
		int n = timeout != 0 && oneshot_held(e) ? AGAIN
			: ours			       ? wait_ours(e, epfd, evs, max, begun, timeout, mask)
						       : wait_native(e, epfd, evs, max, timeout, mask);
		// More may be ready than we take, or may be still. Who is not yet asleep looks himself.
		if (n > 0 && e->nours > 0 && e->sleepers > 0 && (n == max || e->level))
			epset_yield(e);
		if (n != AGAIN && (n >= 0 || !sleep_goes_on(&again, &mask))) {
			sleep_ended(&again);
			return n;
		}
		timeout = ours ? clock_left(timeout, begun) : clock_less(timeout, clock_since(begun));
	}
}
