// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Each direction of an engaged connection is in one of two modes, and the
// writer alone changes it, at an offset that both count:
//
//	          SWITCH{N}: reader consented, no TCP write in flight
//	   TCP ───────────────────────────────────────────────────────► LANE
//	       ◄───────────────────────────────────────────────────────
//	          BACK{M}
//
// The reader reads TCP bytes up to N, never beyond, then the lane up to BACK,
// then TCP again. SWITCH and BACK are slots of the lane, so they are in order
// with its bytes; the k-th SWITCH needs the k-th consent.
//
// In LANE mode a TCP byte means that something wrote past us (the tripwire):
// the connection is reset. Before that verdict, and before FIN counts as the
// end, the reader looks at the lane once more: whatever the writer posted
// before its system call is visible by then.
//
// End of stream: SHUTDOWN carries the number of lane bytes. Each end makes the
// system call as well, so that FIN, RST, and with them errors and hang-ups are the
// kernel's own. There are two things that TCP cannot know: that a peer died with
// lane bytes unread, for which it would have sent RST (ended in receive.c); and that
// we write to a peer that is gone, so who knows of the peer's end writes by TCP.
// `dead` is a connection that was reset without the kernel's doing; then `error` is
// what SO_ERROR would be.
//
// A writer without news from its peer asks the kernel now and then (attend).
//
// Locks: order rx_lock then tx_lock, and never across a call that can block. Readiness needs
// none where what is on the lane is all there is to tell (rx_plain, tx_plain).
#include "real.h"

#include "stream.h"

#include <errno.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>

#include "cancel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "filemap.h"
#include "nap.h"
#include "number.h"
#include "receive.h"
#include "sleep.h"
#include "transmit.h"
#include "zcopy.h"

#define READ_SIDE (EPOLLIN | EPOLLRDHUP | EPOLLPRI)

bool stream_lock(struct conn *c, int fd, struct lock *l)
{
	switch (lock_take(l, &c->sole)) {
	case LOCK_OK:
		return true;
	case LOCK_ORPHAN:
		conn_reset(c, fd, REASON_ORPHAN);
		return true;
	case LOCK_REFUSED:
		break;
	}
	return false;
}

// failed ends a call that has moved `done` bytes before it met error e. After
// some bytes the error waits for the next call, as in the kernel.
static ssize_t failed(struct conn *c, size_t done, int e, int flags)
{
	if (!done && (e == ECONNRESET || (e == EPIPE && !c->tx_shut)))
		c->told = true;
	if (done) {
		if (e != EAGAIN && e != EINTR && e != EPIPE && conn_engaged(c))
			atomic_store(&c->error, e);
		return (ssize_t)done;
	}
	if (e == EPIPE && !(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	errno = e;
	return -1;
}

// arrived: the kernel has bytes, or the end.
static bool arrived(struct conn *c, int fd)
{
	struct pollfd p = {fd, POLLIN, 0};
	return c->dead || c->rx_mode != MODE_TCP || real.poll(&p, 1, 0) != 0;
}

// returning waits while bytes that were on the lane are being sent again by TCP, or those of an
// advert are put on the lane or sent by TCP, if the program was told of them: nothing that was
// readable gives EAGAIN. With advert there was one a moment ago. True: look again.
static bool returning(struct conn *c, int fd, bool advert)
{
	bool told = false, due = advert || c->rx_frozen || c->rx_late;
	for (int i = 0; i < LEAVE_MS && due; i++) {
		if (!stream_lock(c, fd, &c->rx_lock))
			break;
		told |= c->rx_told;
		due = c->rx_told && (c->rx_frozen ? lane_look(&c->rx) == LOOK_DATA
				     : c->rx_late ? !arrived(c, fd)
						  : lane_owed(&c->rx) && !c->rx_fin && !c->dead);
		if (due && i == LEAVE_MS - 1)
			c->rx_told = c->rx_late = false; // it takes its time: wait for this once
		lock_give(&c->rx_lock);
		if (!due)
			break;
		conn_heed(); // the other end may be ours too
		real.poll(NULL, 0, 1);
	}
	return told;
}

// discard is receive with MSG_TRUNC: it goes over the same bytes again and again.
static ssize_t receive(struct conn *c, int fd, const struct iovec *iov, int n, int flags);
static __attribute__((noinline)) ssize_t discard(struct conn *c, int fd, size_t size, int flags)
{
	char scratch[1024];
	struct iovec waste[64], *end = waste;
	for (size_t part; size > 0 && end < waste + 64; size -= part)
		*end++ = (struct iovec){scratch, part = size < sizeof scratch ? size : sizeof scratch};
	return receive(c, fd, waste, (int)(end - waste), flags & ~MSG_TRUNC);
}

static ssize_t receive(struct conn *c, int fd, const struct iovec *iov, int n, int flags)
{
	struct cursor cur = cursor_make(iov, n);
	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return STREAM_NATIVE;
	if (cur.left == 0) { // recv only: it waits for readiness and takes nothing
		struct sleep z = sleep_begin(c->rcvtimeo_ns);
		int e = 0;
		while (!e && conn_engaged(c) && stream_unread(c, fd) == 0 && !(stream_ready(c, fd, EPOLLIN) & (EPOLLIN | EPOLLHUP | EPOLLERR))) {
			if (c->rx_mode == MODE_TCP && !c->rx_hint && atomic_exchange(&c->rx_hint, 1) == 0 &&
			    stream_ready(c, fd, EPOLLIN) & EPOLLIN)
				break;
			e = c->nonblock || flags & MSG_DONTWAIT ? EAGAIN : sleep_on(&z, c, fd, EPOLLIN);
			fd = number_now(c, fd);
		}
		errno = e;
		return e ? -1 : 0;
	}
	if (flags & MSG_TRUNC) // TCP discards instead of copying
		return discard(c, fd, cur.left, flags);
	bool block = !c->nonblock && !(flags & MSG_DONTWAIT);
	size_t low = c->rcvlowat ? c->rcvlowat : 1;
	size_t target = flags & MSG_WAITALL ? cur.left : low < cur.left ? low : cur.left;
	struct sleep s = sleep_begin(c->rcvtimeo_ns);
	size_t got = 0, whole = cur.left;
	bool again = false, last = false;
	channel_ran(c->channel);
	for (;;) {
		if (!stream_lock(c, fd, &c->rx_lock)) {
			errno = block ? EINTR : EAGAIN; // a signal handler inside a call on the same connection
			return got ? (ssize_t)got : -1;
		}
		if (!conn_engaged(c)) {
			lock_give(&c->rx_lock);
			if (got == 0)
				return STREAM_NATIVE;
			if (block && got < target) { // it went back to TCP on the way, and maybe to the lane again
				if (conn_enter(c, fd))
					continue;
				got += rx_rest(c, fd, &cur, flags);
			}
			return (ssize_t)got;
		}
		zcopy_read(c, whole);
		ssize_t r = rx_take(c, fd, &cur, flags);
		bool more = c->rx.advert.left > 0; // of an advert: its writer need not know yet
		lock_give(&c->rx_lock);
		if (r > 0) {
			if (!more && c->rx_mode == MODE_LANE && !(flags & MSG_PEEK)) // else there is no more room on the lane
				doorbell_room(c);
			got += (size_t)r;
			if ((flags & MSG_PEEK) && block && got < target && !last) {
				last = !rx_goes_on(c, fd) || !sleep_moment(&s);
				cur = cursor_make(iov, n); // from the beginning
				got = 0;
				continue;
			}
			if ((flags & MSG_PEEK) || cur.left == 0 || !block || got >= target || rx_marked(c, fd))
				return (ssize_t)got;
			continue;
		}
		if (r == 0)
			return (ssize_t)got;
		if (r == -EAGAIN && !block && !got && !again && returning(c, fd, more)) {
			again = true;
			continue;
		}
		if (r != -EAGAIN || !block)
			return failed(c, got, (int)-r, MSG_NOSIGNAL);
		s.moved = got > 0;
		int e = sleep_on(&s, c, fd, EPOLLIN);
		fd = number_now(c, fd);
		if (e)
			return failed(c, got, e, MSG_NOSIGNAL);
	}
}

// wanted_back: the peer wants what we write by TCP. switched: it may wait for us to take SWITCH.
HINT static inline bool wanted_back(struct conn *c)
{
	return c->tx_mode == MODE_LANE && atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->go_back);
}
HINT static inline bool switched(struct conn *c) { return c->rx_mode == MODE_TCP && !c->rx_pending && lane_valid(&c->rx, c->rx.slot); }

HINT static inline bool owes(struct conn *c) { return atomic_load_explicit(&c->tx_owes, memory_order_relaxed) != 0; }

bool stream_heeds(struct conn *c) { return wanted_back(c) || owes(c) || switched(c); }

HINT void stream_heed(struct conn *c, int fd)
{
	if ((wanted_back(c) || owes(c)) && lock_try(&c->tx_lock, &c->sole)) {
		tx_turn(c, fd);
		lock_give(&c->tx_lock);
	}
	if (switched(c) && lock_try(&c->rx_lock, &c->sole)) {
		rx_turn(c, fd);
		lock_give(&c->rx_lock);
	}
}

bool stream_asks(struct conn *c)
{
	if (atomic_load_explicit((_Atomic uint64_t *)&c->peer->closed, memory_order_relaxed) && !c->rx_fin && !c->dead)
		return true;
	uint64_t since = clock_ticks() - atomic_load_explicit(&c->asked, memory_order_relaxed);
	return since > ASK_TICKS && since < -(uint64_t)TOLD_TICKS; // or it lies ahead, no further than that
}

void stream_asked(struct conn *c, uint64_t ticks)
{
	if ((int64_t)(ticks - atomic_load_explicit(&c->asked, memory_order_relaxed)) > 0)
		atomic_store_explicit(&c->asked, ticks, memory_order_relaxed);
}

void stream_told(struct conn *c, uint64_t ticks) { stream_asked(c, ticks + TOLD_TICKS); }

void stream_probe(struct conn *c, int fd)
{
	if (stream_lock(c, fd, &c->rx_lock)) {
		rx_probe(c, fd);
		lock_give(&c->rx_lock);
	}
}

// on_lane: what is written now goes by the lane, or earlier bytes there are unread.
HINT static inline bool on_lane(const struct conn *c)
{
	return c->tx_mode == MODE_LANE || load_acquire(&c->peer->consent) > c->tx_switches || load_acquire(&c->peer->slots_taken) != c->tx.slot;
}

// attend asks the kernel about the peer's end when the peer has been silent for
// some time: nothing else tells a writer that nobody reads. What was on the lane at the
// write before, and has been read since, is no news.
HINT static inline void attend(struct conn *c, int fd)
{
	bool heard = c->rx.bytes != c->tx_heard && !c->tx_behind;
	c->tx_heard = c->rx.bytes;
	c->tx_behind = c->rx.piece_left || lane_valid(&c->rx, c->rx.slot);
	if (!heard && stream_asks(c) && on_lane(c))
		stream_probe(c, fd);
}

// cut_short ends the call's advert. Of the rest goes by the lane what has room, as the
// kernel would have taken that.
static size_t cut_short(struct conn *c, int fd, struct cursor *cur, int flags, struct zcopy *z)
{
	zcopy_end();
	if (!stream_lock(c, fd, &c->tx_lock))
		return 0;
	size_t n = zcopy_count(cur, z);
	if (cur->left > 0 && conn_engaged(c) && !c->dead && !c->error) {
		ssize_t r = tx_put(c, fd, cur, flags & ~MSG_DONTWAIT, NULL);
		n += r > 0 ? (size_t)r : 0;
	}
	lock_give(&c->tx_lock);
	return n;
}

static void cancelled(void *none)
{
	(void)none;
	zcopy_end();
}

// sleep_advertised is sleep_on with an advert out, which ends if the thread does.
static __attribute__((noinline)) int sleep_advertised(struct sleep *s, struct conn *c, int fd)
{
	int e;
	CANCELLED(cancelled, e = sleep_on(s, c, fd, EPOLLOUT));
	return e;
}

static ssize_t transmit(struct conn *c, int fd, const struct iovec *iov, int n, int flags)
{
	struct cursor cur = cursor_make(iov, n);
	bool block = !c->nonblock && !(flags & MSG_DONTWAIT);
	size_t done = 0;
	if (cur.left == 0)
		return real.send(fd, "", 0, flags); // an end or an error is the kernel's to tell
	if (flags & (MSG_OOB | MSG_FASTOPEN) && !stream_leave_tx(c, fd)) {
		errno = EAGAIN;
		return -1;
	}
	struct sleep s = {0};
	struct zcopy z = {0};
	channel_ran(c->channel);
	attend(c, fd);
	for (;;) {
		if (!stream_lock(c, fd, &c->tx_lock))
			return failed(c, done, block ? EINTR : EAGAIN, flags);
		done += zcopy_count(&cur, &z);
		if (cur.left == 0) {
			lock_give(&c->tx_lock);
			return (ssize_t)done;
		}
		if (!conn_engaged(c)) { // and no advert is out
			lock_give(&c->tx_lock);
			if (done == 0)
				return STREAM_NATIVE;
			if (block) { // it went back to TCP on the way, and maybe to the lane again
				if (conn_enter(c, fd))
					continue;
				done += tx_rest(c, fd, &cur, flags);
			}
			return (ssize_t)done;
		}
		ssize_t r = tx_put(c, fd, &cur, flags & ~MSG_DONTWAIT, block ? &z : NULL);
		lock_give(&c->tx_lock);
		if (z.c && r < 0 && (r != -EAGAIN || !zcopy_stays(&z)))
			done += cut_short(c, fd, &cur, flags, &z);
		if (r < 0 && cur.left == 0)
			return (ssize_t)done;
		if (r > 0) {
			done += (size_t)r;
			if (cur.left == 0 || !block)
				return (ssize_t)done;
			// The rest: at once if there is room again, else sleep for it.
			continue;
		}
		if (r != -EAGAIN || !block)
			return failed(c, done, (int)-r, flags);
		if (!s.begun)
			s = sleep_begin(c->sndtimeo_ns);
		s.moved = done > 0 || z.c;
		int e = z.c ? sleep_advertised(&s, c, fd) : sleep_on(&s, c, fd, EPOLLOUT);
		fd = number_now(c, fd);
		if (e && z.c)
			done += cut_short(c, fd, &cur, flags, &z);
		if (e == EINTR && !done && sleep_restarts(&s))
			continue; // of an advert nothing was taken, and there was no room
		if (e)
			return failed(c, done, e, flags);
		if (c->rx_hint && c->tx_mode == MODE_LANE)
			stream_probe(c, fd);
	}
}

static ssize_t transmit_file(struct conn *c, int fd, int in, off_t *offset, size_t count)
{
	off_t at = offset ? *offset : lseek(in, 0, SEEK_CUR);
	bool block = !c->nonblock;
	struct sleep s = {0};
	size_t done = 0;
	int e = 0;
	if (at < 0)
		return STREAM_NATIVE; // not a file: let the kernel say so, or do it
	channel_ran(c->channel);
	attend(c, fd);
	struct filemap *map = filemap_take(in, count);
	while (done < count && !e) {
		if (!stream_lock(c, fd, &c->tx_lock)) {
			e = EINTR;
			break;
		}
		bool engaged = conn_engaged(c);
		ssize_t r = engaged ? tx_file(c, fd, map, in, at, count - done) : 0;
		lock_give(&c->tx_lock);
		if (!engaged && !done) {
			filemap_give(map);
			return STREAM_NATIVE;
		}
		if (!engaged && block) { // it went back to TCP on the way, and maybe to the lane again
			if (conn_enter(c, fd))
				continue;
			r = real.sendfile(fd, in, &at, count - done);
			if (r > 0) {
				single_add64(&c->tcp_tx, (uint64_t)r, conn_sole(c));
				done += (size_t)r;
			}
			break;
		}
		if (r == 0)
			break; // end of file
		if (r > 0) {
			at += r;
			done += (size_t)r;
			continue;
		}
		e = (int)-r;
		if (e != EAGAIN || !block)
			break;
		if (!s.begun)
			s = sleep_begin(c->sndtimeo_ns);
		s.moved = done > 0;
		filemap_give(map);
		e = sleep_on(&s, c, fd, EPOLLOUT);
		map = e ? NULL : filemap_take(in, count);
		fd = number_now(c, fd);
		if (c->rx_hint && c->tx_mode == MODE_LANE)
			stream_probe(c, fd);
	}
	filemap_give(map);
	if (offset)
		*offset = at;
	else if (done > 0)
		lseek(in, at, SEEK_SET);
	return e ? failed(c, done, e, 0) : (ssize_t)done;
}

// hold is for calls that handlers of signals may leave: they use the connection.
static void hold(void *c, int by) { by > 0 ? conn_more(c) : by < 0 ? conn_put(c) : (void)0; }

#define MAY_BE_LEFT(c, call) \
	({ \
		struct nap nap_; \
		nap_begin(&nap_, hold, c); \
		ssize_t r_ = (call); \
		nap_end(&nap_); \
		r_; \
	})

ssize_t stream_recv(struct conn *c, int fd, const struct iovec *iov, int n, int flags)
{
	return MAY_BE_LEFT(c, receive(c, fd, iov, n, flags));
}

ssize_t stream_send(struct conn *c, int fd, const struct iovec *iov, int n, int flags)
{
	return MAY_BE_LEFT(c, transmit(c, fd, iov, n, flags));
}

ssize_t stream_sendfile(struct conn *c, int fd, int in, off_t *offset, size_t count)
{
	return MAY_BE_LEFT(c, transmit_file(c, fd, in, offset, count));
}

HINT bool stream_room(struct conn *c)
{
	return c->tx_mode == MODE_TCP || c->tx_shut || tx_room(c);
}

HINT bool stream_glance(struct conn *c, uint32_t want)
{
	if (want & READ_SIDE && rx_waits(c))
		return true;
	atomic_thread_fence(memory_order_acquire); // rx_hint after the slots: see announce in receive.c
	if (c->rx_hint || c->dead || c->rx_eof || c->rx_fin || c->rx_shut) // EPOLLHUP is always wanted
		return true;
	return want & EPOLLOUT && (stream_room(c) || tx_patience(c) == 0);
}

static uint32_t native_ready(int fd, uint32_t want)
{
	struct pollfd p = {fd, (short)want, 0};
	return real.poll(&p, 1, 0) > 0 ? (uint32_t)p.revents & 0xffff : 0;
}

// calm: the kernel has no urgent data. Who sends some posts BACK before, for good.
HINT static bool calm(const struct conn *c) { return c->rx_mode == MODE_LANE && !c->rx_frozen && lane_pure(&c->rx); }

uint32_t stream_ready(struct conn *c, int fd, uint32_t want)
{
	uint32_t r = 0;
	if (want & READ_SIDE && rx_plain(c)) {
		r = EPOLLIN;
	} else if ((want & READ_SIDE || c->rx_hint) && stream_lock(c, fd, &c->rx_lock)) {
		if (c->own)
			r |= rx_ready(c, fd);
		lock_give(&c->rx_lock);
	}
	if (!c->dead && want & EPOLLPRI && !calm(c))
		r |= native_ready(fd, EPOLLPRI) & EPOLLPRI;
	if (want & EPOLLOUT && tx_plain(c)) {
		r |= EPOLLOUT;
	} else if (!c->dead && want & EPOLLOUT && stream_lock(c, fd, &c->tx_lock)) {
		r |= tx_ready(c, fd);
		lock_give(&c->tx_lock);
	}
	if (c->dead)
		r |= EPOLLIN | EPOLLOUT | EPOLLHUP | EPOLLRDHUP;
	else if (c->rx_fin || c->rx_shut || c->rx_eof)
		r |= native_ready(fd, 0); // EPOLLHUP and EPOLLERR are the kernel's
	if (c->error)
		r |= EPOLLERR;
	return r & (want | EPOLLHUP | EPOLLERR);
}

static int unread_now(struct conn *c, int fd, bool *advert)
{
	int n = 0;
	*advert = false;
	if (!stream_lock(c, fd, &c->rx_lock))
		return 0;
	rx_turn(c, fd);
	// All TCP bytes and all slots that are here belong to the stream, whatever
	// their order. In LANE mode TCP has none before BACK is posted.
	uint64_t at = c->rx.slot, turns = c->rx.turns;
	lane_news(&c->rx, &at, &turns);
	bool lane = c->rx_mode == MODE_LANE && !c->rx_frozen && turns == c->rx.turns;
	if (!lane && (!c->dead || c->reason == REASON_PEER_GONE))
		real.ioctl(fd, FIONREAD, &n);
	// What is behind TCP bytes that have yet to come nobody can read.
	bool late = c->rx_mode == MODE_TCP && c->rx_pending && (uint64_t)n < c->rx_switch_at - c->tcp_rx;
	int posted = late || (lane_owed(&c->rx) && !c->rx_told) ? 0 : (int)lane_available(&c->rx, 1u << 30, true);
	if (posted > 0)
		rx_tell(c);
	if (!c->rx_frozen)
		n += posted;
	else if (n < posted)
		n = posted; // they are being sent again, by TCP
	*advert = c->rx.advert.left > 0;
	lock_give(&c->rx_lock);
	return n;
}

int stream_unread(struct conn *c, int fd)
{
	bool advert;
	int n = unread_now(c, fd, &advert);
	return n == 0 && returning(c, fd, advert) ? unread_now(c, fd, &advert) : n;
}

int stream_shutdown(struct conn *c, int fd, int how)
{
	if (stream_lock(c, fd, &c->rx_lock)) {
		rx_turn(c, fd); // the peer leaves its lane, which it can once we have taken SWITCH
		rx_probe(c, fd);
		lock_give(&c->rx_lock);
	}
	// To the end: another thread's write must not come to TCP between our end and the kernel's.
	bool writes = (how == SHUT_WR || how == SHUT_RDWR) && stream_lock(c, fd, &c->tx_lock);
	if (writes && !c->dead && c->own && !c->tx_shut)
		tx_finish(c, fd, HOW_WRITE);
	int r = -1;
	if (c->dead) {
		errno = ENOTCONN;
	} else {
		if (how == SHUT_RD || how == SHUT_RDWR)
			c->rx_shut = true;
		atomic_fetch_add(&c->shutdowns, 1);
		conn_stir(c);
		r = real.shutdown(fd, how);
		if (c->own)
			doorbell_rouse(c, true); // nobody waits for room any more
	}
	if (writes)
		lock_give(&c->tx_lock);
	return r;
}

void stream_close(struct conn *c, int fd)
{
	if (!stream_lock(c, fd, &c->rx_lock))
		return;
	if (!stream_lock(c, fd, &c->tx_lock)) {
		lock_give(&c->rx_lock);
		return;
	}
	int tcp = 0; // for these the kernel resets, and the peer must not see another end before
	enum lane_look look = LOOK_CONTROL; // the peer has just left its lane, or ended: of that nothing is unread
	for (int i = 0; look == LOOK_CONTROL && i < 4; i++) {
		rx_turn(c, fd);
		real.ioctl(fd, FIONREAD, &tcp);
		look = lane_look(&c->rx);
	}
	bool unread = tcp > 0 || rx_marked(c, fd) || (c->rx_mode == MODE_LANE && (look != LOOK_NONE || c->rx.advert.left) && !c->rx_eof);
	if (!c->dead && !unread && c->linger_s != 0 && !c->tx_shut)
		tx_finish(c, fd, HOW_CLOSE);
	// Who is closed already, by both ends or a reset, resets nothing.
	if (!c->dead && (unread || c->linger_s == 0) && conn_tcp_state(fd) != CLOSED) {
		struct linger now = {1, 0};
		lane_post(&c->tx, TAG_ABORT, 0, 0);
		real.setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
	}
	atomic_store(&c->own->closed, 1);
	doorbell_ring(c, &c->peer->rx_waiters);
	doorbell_ring(c, &c->peer->tx_waiters);
	lock_give(&c->tx_lock);
	lock_give(&c->rx_lock);
}
