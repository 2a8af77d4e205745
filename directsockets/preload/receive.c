// SPDX-License-Identifier: Apache-2.0
//
// The inbound direction of an engaged connection: TCP up to SWITCH, the lane up
// to BACK, TCP again, and every kind of end. The rules are in stream.c.
#include "real.h"

#include "receive.h"

#include <errno.h>
#include <linux/sock_diag.h>
#include <linux/sockios.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>

#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "number.h"
#include "stream.h"
#include "transmit.h"
#include "zcopy.h"

enum { PARTS = 16 }; // of a part of a call, that the kernel is given at once

// whole: the kernel can be given all of the call's vector as it is.
static bool whole(const struct cursor *cur, size_t limit) { return cur->n > PARTS && cur->off == 0 && limit >= cur->left; }

static ssize_t kernel_recv(int fd, const struct cursor *cur, size_t limit, int flags)
{
	struct iovec iov[PARTS];
	int n = 0;
	size_t left = limit < cur->left ? limit : cur->left, off = cur->off;
	for (int i = 0; i < cur->n && n < PARTS && left > 0; i++, off = 0) {
		size_t k = cur->iov[i].iov_len - off;
		if (k > left)
			k = left;
		if (k == 0)
			continue;
		iov[n++] = (struct iovec){(char *)cur->iov[i].iov_base + off, k};
		left -= k;
	}
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	if (whole(cur, limit))
		h = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)cur->iov, .msg_iovlen = (size_t)cur->n};
	return real.recvmsg(fd, &h, flags);
}

// Native calls are all non-blocking.
static ssize_t native_recv(int fd, const struct cursor *cur, size_t limit, int flags)
{
	return kernel_recv(fd, cur, limit, (flags & (MSG_PEEK | MSG_TRUNC)) | MSG_DONTWAIT);
}

bool rx_marked(const struct conn *c, int fd)
{
	int at = 0;
	return c->rx_mode == MODE_TCP && real.ioctl(fd, SIOCATMARK, &at) == 0 && at;
}

size_t rx_rest(struct conn *c, int fd, struct cursor *cur, int flags)
{
	size_t got = 0;
	while (cur->left > 0) {
		ssize_t r = kernel_recv(fd, cur, cur->left, flags);
		if (r <= 0)
			break;
		single_add64(&c->tcp_rx, (uint64_t)r, conn_sole(c));
		cursor_skip(cur, (size_t)r);
		got += (size_t)r;
		if (!(flags & MSG_WAITALL))
			break;
	}
	return got;
}

void rx_freeze(struct conn *c, int fd)
{
	rx_turn(c, fd);
	if (c->dead || c->rx_eof || atomic_load(&c->own->go_back))
		return;
	c->rx_frozen = true;
	atomic_store(&c->own->go_back, c->rx.bytes + 1);
	atomic_thread_fence(memory_order_seq_cst); // then look for SWITCH: see tx_turn
	rx_turn(c, fd);
}

// nonsense ends a connection by what was found in the peer's memory, also one that the
// peer's death has ended already: nothing more of it is read.
static void nonsense(struct conn *c, int fd)
{
	conn_reset(c, fd, REASON_HOSTILE);
	atomic_store(&c->reason, REASON_HOSTILE);
}

// announce: a control slot is about to be taken. Who looks without the lock looks for it first,
// then at rx_hint (stream_glance), and so finds one of both, also before what the slot says is
// noted. Without it he would sleep, and may have used up what was to wake him.
static void announce(struct conn *c)
{
	atomic_store(&c->rx_hint, 1);
	atomic_thread_fence(memory_order_release); // before the slot is behind us
}

// thaw looks whether the writer has answered go_back. True: look at the lane.
static bool thaw(struct conn *c, int fd)
{
	struct lane_rx behind = c->rx;
	switch (lane_skip(&behind)) {
	case LOOK_NONE:
		return false;
	case LOOK_HOSTILE:
		nonsense(c, fd);
		return false;
	case LOOK_CONTROL: // what we have not taken comes by TCP
		announce(c);
		c->rx = behind;
		c->rx_pending = c->rx_frozen = false;
		atomic_store(&c->rx_mode, MODE_TCP);
		lane_give(&c->rx);
		return true;
	case LOOK_DATA: // the writer had left the lane before it saw go_back
		c->rx_frozen = false;
	}
	return true;
}

// left: though it is reset, there may be more of what came before.
static bool left(const struct conn *c) { return !c->dead || c->reason == REASON_PEER_GONE; }

void rx_turn(struct conn *c, int fd)
{
	uint64_t a, b;
	bool took = false;
	if (c->rx_mode == MODE_LANE && !c->rx_frozen && lane_plain(&c->rx))
		return; // as nearly always
	while (left(c) && !c->rx_eof) {
		if (__builtin_expect(c->rx_frozen, 0)) {
			enum lane_look look = lane_look(&c->rx);
			if (c->rx_mode == MODE_TCP && !c->rx_pending && look == LOOK_NONE) {
				c->rx_frozen = false; // no SWITCH: none follows
				break;
			}
			if ((c->rx_mode == MODE_LANE || c->rx_pending) && !thaw(c, fd))
				break;
		}
		if (c->rx_mode == MODE_TCP && c->rx_pending) {
			if (c->tcp_rx != c->rx_switch_at)
				break;
			c->rx_pending = false;
			atomic_store(&c->rx_mode, MODE_LANE);
		}
		bool dropped = c->rx_mode == MODE_LANE && lane_meet(&c->rx);
		took |= dropped;
		if (c->rx.advert.left && c->rx.advert.stuck && lane_valid(&c->rx, c->rx.slot) && !lane_void(&c->rx)) {
			nonsense(c, fd); // nobody posts behind an advert that is out
			break;
		}
		enum lane_look look = lane_look(&c->rx);
		if (look == LOOK_NONE || (look == LOOK_DATA && c->rx_mode == MODE_LANE))
			break;
		if (look != LOOK_CONTROL) {
			nonsense(c, fd);
			break;
		}
		announce(c);
		enum lane_tag tag = lane_take(&c->rx, &a, &b);
		took = true;
		bool lane = c->rx_mode == MODE_LANE;
		bool asked = atomic_load(&c->own->go_back);
		if (tag == TAG_SWITCH && !lane && a >= c->tcp_rx && c->rx_consented && (!asked || c->rx_frozen)) {
			c->rx_pending = true;
			c->rx_switch_at = a;
			c->rx_switched++;
		} else if (tag == TAG_SWITCH && !lane && asked) {
			// It crossed our go_back, and nothing is on the lane before BACK.
			c->rx_crossing = true;
			c->rx_switched++;
		} else if (tag == TAG_BACK && !lane && c->rx_crossing && a == c->rx.bytes) {
			c->rx_crossing = false;
		} else if (tag == TAG_BACK && lane && a == c->rx.bytes) {
			atomic_store(&c->rx_mode, MODE_TCP);
			c->rx_late = dropped && c->rx_told;
			lane_give(&c->rx); // before consent: no more than four control slots are ever in use
			if (!asked)
				atomic_store(&c->own->consent, ++c->rx_consented);
		} else if (tag == TAG_SHUTDOWN && lane && b == c->rx.bytes) {
			atomic_store(&c->rx_eof, true);
		} else if (tag != TAG_ABORT) { // behind which RST is on its way
			nonsense(c, fd);
		}
	}
	if (took) {
		lane_give(&c->rx);
		doorbell_ring(c, &c->peer->tx_waiters); // who waits for SWITCH to be taken
	}
}

bool rx_quiet(struct conn *c, int fd)
{
	rx_turn(c, fd);
	return left(c) && !c->rx_eof && c->rx_mode == MODE_TCP && !c->rx_frozen && !c->rx_pending && !c->rx_crossing;
}

void rx_consent(struct conn *c, int fd)
{
	atomic_store(&c->own->go_back, 0);
	if (c->rx_consented == c->rx_switched) // else the last one has not been used, and is good
		atomic_store(&c->own->consent, ++c->rx_consented);
	// A writer that has posted SWITCH fences, and looks at go_back. Either it sees that it is 0, and no
	// TCP byte follows, or we see SWITCH before we read any.
	atomic_thread_fence(memory_order_seq_cst);
	rx_turn(c, fd);
}

// knows: the kernel has reset the connection by itself.
static bool knows(const struct conn *c, int fd)
{
	struct pollfd p = {fd, 0, 0};
	return c->told || (real.poll(&p, 1, 0) > 0 && p.revents & POLLERR);
}

// ended: the kernel has the peer's FIN. A peer that neither closed nor shut down has
// died, and TCP would have told us by a reset if it left bytes of ours unread.
static void ended(struct conn *c, int fd)
{
	atomic_store(&c->rx_fin, true);
	bool shut = atomic_load((_Atomic uint64_t *)&c->peer->shut);
	if (c->tx_shut && (shut || (c->rx_shut && knows(c, fd))))
		return; // both ends are over, or data came
	if (c->dead || atomic_load((_Atomic uint64_t *)&c->peer->closed) || (shut && atomic_load(&c->channel->live) == 1) ||
	    !tx_unread(c))
		return;
	conn_reset(c, fd, REASON_PEER_GONE);
	if (shut && c->error)
		atomic_store(&c->error, EPIPE); // a reset after FIN
}

// look asks the kernel about the socket. After its FIN it says nothing of the peer's
// death; the control socket does.
static int look(struct conn *c, int fd, struct pollfd *p)
{
	bool shut = atomic_load((_Atomic uint64_t *)&c->peer->shut) && !atomic_load((_Atomic uint64_t *)&c->peer->closed) &&
		    atomic_load(&c->channel->live) == 1;
	struct pollfd both[2] = {{fd, p->events, 0}, {shut ? c->channel->ctl : -1, 0, 0}};
	int n = real.poll(both, shut ? 2 : 1, 0);
	*p = both[0];
	if (n > 0 && both[1].revents)
		channel_kill(c->channel, REASON_PEER_GONE);
	return n;
}

static bool probe(struct conn *c, int fd, bool lane)
{
	struct pollfd p = {fd, POLLIN | POLLRDHUP, 0};
	bool news = false;
	atomic_store_explicit(&c->asked, clock_ticks(), memory_order_relaxed);
	if (c->dead || number_now(c, fd) != fd || look(c, fd, &p) < 0) // it may be another connection's by now
		return false;
	if (p.revents & POLLRDHUP && !c->dead && (!c->rx_shut || conn_fin_came(fd))) {
		news |= !c->rx_fin;
		ended(c, fd);
	} else if (lane && !c->dead && !c->rx_fin && atomic_load(&c->channel->live) != 1 && lane_look(&c->rx) == LOOK_NONE) {
		ended(c, fd); // hung up: its last process is gone
		news = true;
	}
	char b;
	if (lane && !c->dead && !c->rx_fin && p.revents & POLLIN && lane_look(&c->rx) == LOOK_NONE &&
	    real.recv(fd, &b, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
		if (!lane_valid(&c->rx, c->rx.slot)) {
			conn_log(c, "has TCP bytes at or after the switch offset %llu: another program, stdio or a raw system call of process %u writes to it",
				 (unsigned long long)c->rx_switch_at, c->channel->pid);
			conn_reset(c, fd, REASON_TRIPWIRE);
		}
		atomic_store(&c->rx_hint, 1);
		news = true;
	}
	return news || c->dead;
}

// The hint stays until the answer is noted: who looks without the lock (stream_glance,
// rx_plain) would miss what is known to neither, and sleep. A hint that comes meanwhile stays,
// too.
enum { ASKING = 2 };
static void asking(struct conn *c) { atomic_store(&c->rx_hint, ASKING); }
static void answered(struct conn *c, bool more)
{
	uint32_t before = ASKING;
	if (more)
		atomic_store(&c->rx_hint, 1);
	else
		atomic_compare_exchange_strong(&c->rx_hint, &before, 0);
}

bool rx_probe(struct conn *c, int fd)
{
	bool lane = c->rx_mode == MODE_LANE;
	if (lane || c->rx_eof)
		asking(c);
	bool news = probe(c, fd, lane);
	answered(c, false);
	return news;
}

bool rx_goes_on(const struct conn *c, int fd)
{
	struct pollfd p = {fd, POLLPRI, 0};
	return !c->dead && !c->rx_eof && !c->rx_fin && !c->rx_shut && !conn_fin_came(fd) && real.poll(&p, 1, 0) == 0;
}

// lane_first: what the lane holds comes before the end that is known already.
static bool lane_first(const struct conn *c)
{
	return c->rx_mode == MODE_LANE && !c->rx_frozen && left(c) && lane_look(&c->rx) == LOOK_DATA;
}

// The error that waits, as recv tells it; 0 is the end of the stream.
static ssize_t failed(struct conn *c)
{
	bool fin = c->rx_eof || (c->dead && c->reason == REASON_PEER_GONE && atomic_load((_Atomic uint64_t *)&c->peer->shut));
	return fin ? 0 : -atomic_exchange(&c->error, 0);
}

// from_lane reads in LANE mode, after rx_turn: >0 bytes, 0 nothing.
static size_t from_lane(struct conn *c, int fd, struct cursor *cur)
{
	bool hostile = false;
	size_t n = lane_read(&c->rx, cur, &hostile);
	while (c->rx.advert.left && cur->left > 0 && !hostile) {
		size_t k = zcopy_pull(c, &c->rx, cur, c->rx.advert.left);
		if (k == 0)
			break;
		n += k + lane_read(&c->rx, cur, &hostile);
	}
	lane_give(&c->rx);
	if (n > 0) {
		lane_intend(&c->tx); // an answer, most likely
		__builtin_prefetch(atomic_load_explicit(&c->ahead, memory_order_relaxed));
		channel_brought(c->channel);
	}
	if (hostile)
		nonsense(c, fd);
	return n;
}

// unread counts the bytes that the kernel holds. Who has some already asks before a
// call that might use up the error that comes after them.
static size_t unread(int fd)
{
	int here = 0;
	return real.ioctl(fd, FIONREAD, &here) == 0 && here > 0 ? (size_t)here : 0;
}

// peek_tcp copies TCP bytes behind the first `skip` ones, without taking any.
static size_t peek_tcp(int fd, struct cursor *cur, size_t skip, size_t limit)
{
	size_t n = unread(fd);
	if (n <= skip)
		return 0;
	n -= skip;
	if (skip == 0 && (cur->n <= PARTS || whole(cur, limit))) {
		ssize_t k = native_recv(fd, cur, limit, MSG_PEEK);
		cursor_skip(cur, k > 0 ? (size_t)k : 0);
		return k > 0 ? (size_t)k : 0;
	}
	n = n < limit ? n : limit;
	n = n < cur->left ? n : cur->left;
	char *all = malloc(skip + n);
	ssize_t k = all ? real.recv(fd, all, skip + n, MSG_PEEK | MSG_DONTWAIT) : 0;
	n = k > (ssize_t)skip ? (size_t)k - skip : 0;
	if (n > 0)
		cursor_put(cur, all + skip, n);
	free(all);
	return n;
}

// peek copies without taking, over changes of the mode too.
static size_t peek(struct conn *c, int fd, struct cursor *cur)
{
	struct lane_rx r = c->rx;
	bool lane = c->rx_mode == MODE_LANE, pending = c->rx_pending, hostile = false;
	uint64_t n = c->rx_switch_at, b;
	size_t total = 0, tcp = 0;
	while (cur->left > 0 && !hostile && !(lane && c->rx_frozen)) {
		if (lane) {
			total += lane_read(&r, cur, &hostile);
			total += zcopy_pull(c, &r, cur, lane_advertised(&r, total)); // nothing is behind it
			if (cur->left == 0 || lane_look(&r) != LOOK_CONTROL || lane_take(&r, &n, &b) != TAG_BACK || n != r.bytes)
				break;
			lane = false;
			continue;
		}
		if (!pending && lane_look(&r) == LOOK_CONTROL)
			pending = lane_take(&r, &n, &b) == TAG_SWITCH;
		size_t limit = pending ? n - c->tcp_rx - tcp : (size_t)-1;
		size_t k = limit ? peek_tcp(fd, cur, tcp, limit) : 0;
		tcp += k;
		total += k;
		if (!pending || k != limit)
			break;
		lane = true;
		pending = false;
	}
	if (hostile && total == 0) // else who comes to it by taking what is before it finds out
		nonsense(c, fd);
	return total;
}

// ask_now: has the kernel something to say, or not been asked for long? Who is going to sleep will
// be told (sleep.c).
static bool ask_now(struct conn *c, int flags)
{
	bool sleeps = !c->nonblock && !(flags & MSG_DONTWAIT) && !c->rx_shut && !c->rx.advert.left;
	return c->rx_hint || (!sleeps && stream_asks(c));
}

ssize_t rx_take(struct conn *c, int fd, struct cursor *cur, int flags)
{
	size_t total = 0; // before a change of mode
	for (;;) {
		rx_turn(c, fd);
		bool none = c->dead && c->rx_mode == MODE_LANE && !lane_first(c);
		if (total > 0 && (none || !left(c) || c->rx_eof))
			return (ssize_t)total;
		if (none)
			return failed(c);
		if (flags & MSG_PEEK && (total = peek(c, fd, cur)) > 0) {
			rx_tell(c);
			return (ssize_t)total;
		}
		if (c->rx_mode == MODE_LANE) {
			if (c->rx_frozen)
				return -EAGAIN;
			size_t n = flags & MSG_PEEK ? 0 : from_lane(c, fd, cur);
			if (n > 0 && cur->left > 0 && left(c) && lane_look(&c->rx) == LOOK_CONTROL) {
				total += n; // BACK or SHUTDOWN: go on behind it
				continue;
			}
			if (n + total > 0)
				return (ssize_t)(n + total);
			if (c->rx_eof)
				return 0;
			if (c->dead || lane_look(&c->rx) != LOOK_NONE)
				continue;
			if (!c->rx_fin && ask_now(c, flags) && rx_probe(c, fd))
				continue;
			if (c->rx_shut && !c->rx_fin) { // the end, but for an error
				ssize_t r = native_recv(fd, cur, 1, MSG_PEEK);
				return r < 0 && errno != EAGAIN ? -errno : 0;
			}
			if (c->rx.advert.left) { // withdrawn, or soon: the rest comes behind it
				if (!lane_owed(&c->rx))
					continue;
				if (c->rx_told && !c->rx_fin)
					return -EAGAIN;
			}
			// What somebody was told of without the lock (rx_plain) can be seen by now.
			if (c->rx_told && atomic_exchange(&c->rx_told, false) && lane_look(&c->rx) != LOOK_NONE)
				continue;
			if (!c->rx_fin || lane_look(&c->rx) != LOOK_NONE)
				return c->error ? failed(c) : -EAGAIN;
			// End or error: the kernel knows.
			ssize_t r = native_recv(fd, cur, 1, MSG_PEEK);
			if (r < 0 && errno != EAGAIN)
				return -errno;
			if (r > 0)
				conn_reset(c, fd, REASON_TRIPWIRE);
			else
				atomic_store(&c->rx_eof, true);
			continue;
		}
		if (c->rx_eof)
			return 0;
		size_t limit = c->rx_pending ? c->rx_switch_at - c->tcp_rx : (size_t)-1;
		if (limit == 0) // frozen there
			return total ? (ssize_t)total : -EAGAIN;
		if (total > 0 && !unread(fd))
			return (ssize_t)total;
		asking(c);
		bool more = cur->n > PARTS && !whole(cur, limit);
		ssize_t r = native_recv(fd, cur, limit, flags);
		answered(c, r > 0);
		if (r > 0) {
			c->rx_late = false;
			if (flags & MSG_PEEK)
				return r;
			single_add64(&c->tcp_rx, (uint64_t)r, conn_sole(c));
			cursor_skip(cur, (size_t)r);
			total += (size_t)r;
			if (cur->left > 0 && (more || (c->rx_pending && c->tcp_rx == c->rx_switch_at)))
				continue;
			return (ssize_t)total;
		}
		if (total > 0) {
			if (r < 0 && errno != EAGAIN && errno != EINTR)
				atomic_store(&c->error, errno);
			return (ssize_t)total;
		}
		if (c->dead || c->error)
			return failed(c);
		if (r < 0 && errno != EAGAIN && errno != EINTR)
			return -errno;
		if (!c->rx_pending && lane_valid(&c->rx, c->rx.slot))
			continue; // SWITCH was posted before FIN, or meanwhile
		if (r == 0 && c->rx_shut && !conn_fin_came(fd))
			return 0;
		if (r == 0) {
			ended(c, fd);
			if (c->rx_pending)
				conn_reset(c, fd, REASON_PEER_GONE); // FIN before N
			if (!c->dead)
				atomic_store(&c->rx_eof, true);
			continue;
		}
		return c->error ? failed(c) : -EAGAIN;
	}
}

// full: TCP takes no more before somebody reads, and so tells of less than SO_RCVLOWAT.
static bool full(int fd)
{
	enum { RCV_MSS = 5, RCV_WND = 58, WORDS = 60 }; // of struct tcp_info, which is shorter in older headers
	uint32_t memory[SK_MEMINFO_VARS] = {0}, info[WORDS] = {0};
	socklen_t m = sizeof memory, n = sizeof info;
	if (real.getsockopt(fd, SOL_SOCKET, SO_MEMINFO, memory, &m) < 0 || real.getsockopt(fd, SOL_TCP, TCP_INFO, info, &n) < 0)
		return true; // rather too early than never
	uint32_t taken = memory[SK_MEMINFO_RMEM_ALLOC], all = memory[SK_MEMINFO_RCVBUF], room = all > taken ? all - taken : 0;
	uint32_t window = n > RCV_WND * sizeof *info ? info[RCV_WND] : room / 4; // before Linux 6.2: no more than it is
	return room < all / 8 || window <= info[RCV_MSS];
}

// enough: SO_RCVLOWAT is reached, wherever the bytes are.
static bool enough(struct conn *c, int fd)
{
	size_t low = c->rcvlowat, n = low > 1 ? lane_available(&c->rx, low, true) : low, more;
	return n >= low || n + (more = unread(fd)) >= low || (more > 0 && full(fd));
}

// ending: the peer has shut down, so the kernel has its end, or will have it at once.
static bool ending(const struct conn *c)
{
	return !c->rx_fin && atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->shut);
}

bool rx_plain(struct conn *c)
{
	if (c->rx_mode != MODE_LANE || c->rx_hint || c->rx_frozen || c->dead || c->rx_eof || c->rx_fin || c->rx_shut ||
	    c->rcvlowat > 1 || !c->own || ending(c) || !lane_plain(&c->rx))
		return false;
	rx_tell(c);
	return true;
}

uint32_t rx_ready(struct conn *c, int fd)
{
	for (int i = 0; i < 4; i++) {
		rx_turn(c, fd);
		if ((c->rx_hint || ending(c)) && (c->rx_mode == MODE_LANE || c->rx_eof))
			rx_probe(c, fd);
		if (c->dead)
			return EPOLLIN | EPOLLRDHUP;
		uint32_t r = c->rx_eof || c->rx_shut ? EPOLLIN | EPOLLRDHUP : c->rx_fin ? EPOLLRDHUP : 0;
		if (c->rx_mode == MODE_TCP) {
			if (c->rx_eof || !c->rx_hint)
				return r;
			asking(c);
			struct pollfd p = {fd, POLLIN | POLLRDHUP | POLLPRI, 0};
			uint32_t k = look(c, fd, &p) > 0 ? (uint32_t)p.revents & 0xffff : 0;
			answered(c, k);
			if (k & EPOLLRDHUP && (!c->rx_shut || conn_fin_came(fd)))
				ended(c, fd);
			if (!c->rx_pending && lane_valid(&c->rx, c->rx.slot))
				continue; // SWITCH was posted before FIN, or meanwhile
			if (k & EPOLLIN && !(k & (EPOLLRDHUP | EPOLLHUP)) && !enough(c, fd))
				k &= ~(uint32_t)(EPOLLIN | EPOLLRDNORM);
			if (!c->dead)
				return r | k;
			continue;
		}
		if (c->rx_frozen)
			return r;
		if (lane_look(&c->rx) == LOOK_DATA) {
			if (!r && !enough(c, fd))
				return r;
			rx_tell(c);
			return r | EPOLLIN;
		}
		if (r & EPOLLIN || !c->rx_fin)
			return c->rx_told && lane_owed(&c->rx) ? r | EPOLLIN : r;
		if (lane_look(&c->rx) == LOOK_NONE)
			return r | EPOLLIN;
	}
	return 0;
}
