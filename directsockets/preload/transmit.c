// SPDX-License-Identifier: Apache-2.0
//
// The outbound direction of an engaged connection: TCP, SWITCH, the lane, BACK,
// TCP again. The rules are in stream.c.
//
// A reader that returns to TCP has said in go_back which bytes it has taken and
// has stopped there. The rest is still ours: nobody overwrites what no credit was
// given for. So we send it by TCP, then post BACK at the reader's place. What TCP
// does not take at once goes before all later bytes (`again`).
//
// A lane holds less than TCP, and there are programs that need what TCP holds: both ends write,
// and only then read, or one does and the other is itself. So who finds no room for as long
// as config.stuck_ns, in which the reader has taken nothing, goes on by TCP: for a second, and each time for
// twice as long. Whoever waits for room sleeps no longer than that (tx_patience).
#include "real.h"

#include "transmit.h"

#include <errno.h>
#include <stdlib.h>

#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "filemap.h"
#include "shelf.h"
#include "sleep.h"

enum {
	SECOND = 1000000000,
	KICK_NS = SECOND / 16, // between two signals to a reader that has not taken SWITCH
	MOST_STUCK = 6,
};

// full notes that there is no room, and since when the reader has taken nothing.
static void full(struct conn *c)
{
	uint64_t credit = lane_credit(&c->tx);
	if (!c->tx_since || credit != c->credit)
		c->tx_since = clock_ns();
	atomic_store_explicit(&c->credit, credit, memory_order_relaxed);
}

// starve notes that the program found no room. A thread that waits in an edge-triggered set
// may sleep since there was some, and has not asked the peer to ring when there is again.
static void starve(struct conn *c)
{
	full(c);
	atomic_store_explicit(&c->refused, c->tx.bytes + c->tcp_tx + 1, memory_order_relaxed);
	atomic_fetch_add(&c->starved, 1);
	conn_stir(c);
	if (c->watched && c->own)
		doorbell_rouse(c, false);
}

void tx_asked(struct conn *c)
{
	if (!c->tx_shut && atomic_load_explicit(&c->refused, memory_order_relaxed) != c->tx.bytes + c->tcp_tx + 1)
		starve(c);
}

// again sends what the reader handed back. False: TCP takes no more now. The program may make no call for it any
// more, and nobody rings when there is room: we are kicked after a while.
static bool again(struct conn *c, int fd)
{
	for (bool moved = !c->tx_owes; c->tx.again.left;) {
		struct iovec iov[16];
		struct msghdr h = {.msg_iov = iov, .msg_iovlen = (size_t)lane_again(&c->tx, iov, 16)};
		ssize_t r = real.sendmsg(fd, &h, MSG_DONTWAIT | MSG_NOSIGNAL);
		if (r > 0) {
			single_add64(&c->tcp_tx, (uint64_t)r, conn_sole(c));
			lane_again_sent(&c->tx, (uint64_t)r);
			moved = true;
		} else if (r < 0 && (errno == EAGAIN || errno == EINTR)) {
			atomic_store(&c->tx_owes, 1);
			sleep_kick_later(moved);
			return false;
		} else { // the connection has ended
			if (errno != EPIPE)
				atomic_store(&c->error, errno);
			lane_forget(&c->tx);
		}
	}
	return true;
}

// give_back answers go_back. We may not be called again for long, so a small
// send buffer is made larger for the moment.
static void give_back(struct conn *c, int fd, uint64_t taken)
{
	int size;
	socklen_t n = sizeof size;
	if (!lane_withdraw(&c->tx, taken) || again(c, fd) || real.getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &size, &n) < 0)
		return;
	int larger = size + (int)c->tx.again.left, was = size / 2; // the kernel doubles what is set
	real.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &larger, sizeof larger);
	again(c, fd);
	real.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &was, sizeof was);
}

// settled: the lane, and nothing speaks against it.
HINT static inline bool settled(const struct conn *c)
{
	return c->tx_mode == MODE_LANE && !tx_barred(c) && !c->tx.poor && !c->tx_since && !c->rx_fin && !c->dead && !c->tx_shut && !load_acquire(&c->peer->closed) &&
	       !load_acquire(&c->peer->shut) && !load_acquire(&c->peer->go_back) && !config.test_switch &&
	       atomic_load_explicit((_Atomic uint32_t *)&c->channel->live, memory_order_relaxed) == 1;
}

// poor: large writes find no window. Slots hold so little that who writes much before
// anybody reads would wait: TCP holds more.
static bool poor(struct conn *c)
{
	if (!c->tx.poor)
		return false;
	bool still = !lane_rich(&c->tx);
	atomic_store(&c->reason, still ? REASON_MEMORY : REASON_NONE);
	return still;
}

HINT uint64_t tx_patience(const struct conn *c)
{
	uint64_t since = c->tx_since;
	if (!since || !config.stuck_ns || c->tx_mode != MODE_LANE)
		return ~0ull;
	uint64_t waited = clock_ns() - since;
	return waited < config.stuck_ns ? config.stuck_ns - waited : 0;
}

// stuck: the reader has taken nothing for so long that TCP is to have what follows.
static bool stuck(struct conn *c)
{
	if (c->tx_until) {
		if (clock_ns() < c->tx_until)
			return true;
		c->tx_until = 0;
		atomic_store(&c->reason, REASON_NONE);
	}
	if (tx_patience(c) > 0)
		return false;
	uint64_t now = clock_ns();
	bool room = lane_writable(&c->tx), joined = lane_joined(&c->tx);
	uint64_t credit = lane_credit(&c->tx);
	if (room || credit != c->credit) {
		c->credit = credit;
		c->tx_since = room ? 0 : now;
		return false;
	}
	if (!joined) {
		channel_kick(c->channel);
		c->tx_since = now - config.stuck_ns + (KICK_NS < config.stuck_ns ? KICK_NS : config.stuck_ns);
		return false;
	}
	c->tx_since = now;
	c->tx_until = now + ((uint64_t)SECOND << c->tx_stuck);
	c->tx_stuck += c->tx_stuck < MOST_STUCK;
	atomic_store(&c->reason, REASON_UNREAD);
	conn_log(c, "goes on by TCP for a while: %s", reason_names[REASON_UNREAD]);
	return true;
}

void tx_turn(struct conn *c, int fd)
{
	if (c->tx.again.left && !again(c, fd))
		return;
	if (atomic_load_explicit(&c->tx_owes, memory_order_relaxed))
		atomic_store(&c->tx_owes, 0);
	if (c->dead || c->tx_shut || !c->own)
		return;
	bool gone = load_acquire(&c->peer->closed) || atomic_load_explicit(&c->channel->live, memory_order_relaxed) != 1;
	uint64_t back = load_acquire(&c->peer->go_back);
	// Who has ended may be gone, or may refuse what we send; TCP knows.
	bool stop = tx_barred(c) || back || gone || c->rx_fin || load_acquire(&c->peer->shut);
	stop = stop || poor(c) || stuck(c);
	if (c->tx_mode == MODE_TCP) {
		if (stop || load_acquire(&c->peer->consent) <= c->tx_switches || atomic_load(&c->peer->generation) != c->generation)
			return;
		if (config.test_switch && config_random() % config.test_switch == 0)
			return;
		if (!lane_post(&c->tx, TAG_SWITCH, c->tcp_tx, 0))
			return;
		c->tx_switches++;
		c->tx_since = 0;
		atomic_store(&c->tx_mode, MODE_LANE);
		// A reader that withdraws its consent sets go_back, fences, looks for
		// SWITCH. Either it sees this one, or we see go_back and undo it
		// before any byte is on the lane.
		atomic_thread_fence(memory_order_seq_cst);
		back = load_acquire(&c->peer->go_back);
		stop = back;
	} else if (config.test_switch && !stop && config_random() % config.test_switch == 0) {
		stop = true;
	}
	// A reader that has not seen SWITCH may be about to read from TCP, without
	// limit: no byte may be there that belongs behind the lane's.
	if (!stop || (!back && !gone && !lane_joined(&c->tx)) || !zcopy_withdraw(c))
		return;
	if (back)
		give_back(c, fd, back - 1);
	if (!lane_post(&c->tx, TAG_BACK, c->tx.bytes, 0) && !gone)
		conn_reset(c, fd, REASON_HOSTILE); // the reserved slots are enough for an honest peer
	atomic_store(&c->tx_mode, MODE_TCP);
	doorbell_ring(c, &c->peer->rx_waiters);
}

enum { PARTS = 16 }; // of the rest of a call, that the kernel is given at once

static ssize_t kernel_send(struct conn *c, int fd, struct cursor *cur, int flags)
{
	struct iovec iov[PARTS];
	int n = 0;
	size_t off = cur->off;
	for (int i = 0; i < cur->n && n < PARTS; i++, off = 0)
		if (cur->iov[i].iov_len > off)
			iov[n++] = (struct iovec){(char *)cur->iov[i].iov_base + off, cur->iov[i].iov_len - off};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = (size_t)n};
	if (cur->n > PARTS && cur->off == 0) // a peer that is gone answers what comes in two
		h = (struct msghdr){.msg_iov = (struct iovec *)(uintptr_t)cur->iov, .msg_iovlen = (size_t)cur->n};
	ssize_t r = real.sendmsg(fd, &h, flags | MSG_NOSIGNAL);
	if (r > 0) {
		single_add64(&c->tcp_tx, (uint64_t)r, conn_sole(c));
		cursor_skip(cur, (size_t)r);
	}
	return r < 0 ? -errno : r;
}

// Native calls are all non-blocking.
static ssize_t native_send(struct conn *c, int fd, struct cursor *cur, int flags)
{
	ssize_t done = 0, r = -EAGAIN;
	for (bool more = !c->tx.again.left; more && cur->left > 0; done += r > 0 ? r : 0) {
		more = cur->n > PARTS;
		r = kernel_send(c, fd, cur, flags | MSG_DONTWAIT);
		more &= r > 0;
	}
	return done ? done : r;
}

size_t tx_rest(struct conn *c, int fd, struct cursor *cur, int flags)
{
	size_t sent = 0;
	ssize_t r;
	while (cur->left > 0 && (r = kernel_send(c, fd, cur, flags)) > 0)
		sent += (size_t)r;
	return sent;
}

// failed is the error that waits, as the kernel would tell it now.
static int failed(struct conn *c)
{
	if (!c->dead && !atomic_load_explicit(&c->error, memory_order_relaxed))
		return 0;
	int e = atomic_exchange(&c->error, 0);
	return e ? e : c->dead ? EPIPE : 0;
}

ssize_t tx_put(struct conn *c, int fd, struct cursor *cur, int flags, struct zcopy *z)
{
	if (!settled(c))
		tx_turn(c, fd);
	int e = failed(c);
	if (e)
		return -e;
	// What was taken of the call's advert, up to now or to its withdrawal by tx_turn,
	// comes before anything else of it.
	size_t taken = z ? zcopy_count(cur, z) : 0;
	if (taken > 0) {
		c->tx_since = 0;
		channel_brought(c->channel);
		return (ssize_t)taken;
	}
	if (z && z->c) {
		full(c);
		return -EAGAIN;
	}
	if (c->tx_shut || c->tx_mode == MODE_TCP) {
		ssize_t r = native_send(c, fd, cur, flags); // EPIPE and all the rest are the kernel's
		if (r == -EAGAIN || (r > 0 && cur->left > 0))
			starve(c);
		return r;
	}
	size_t done = 0;
	bool was = c->tx.poor;
	while (cur->left > 0) {
		if (z && zcopy_offer(c, fd, cur, z)) {
			doorbell_ring(c, &c->peer->rx_waiters);
			break;
		}
		size_t n = lane_write(&c->tx, cur, config.velo_max);
		if (c->tx.broken) {
			conn_reset(c, fd, REASON_HOSTILE);
			break;
		}
		if (n == 0)
			break;
		done += n;
		channel_brought(c->channel);
		doorbell_ring(c, &c->peer->rx_waiters);
	}
	if (done == 0 && c->tx.poor && !was)
		return tx_put(c, fd, cur, flags, z); // by TCP, or by slots as long as the reader has not taken SWITCH
	if (done > 0 && c->tx_since)
		c->tx_since = 0;
	if (cur->left > 0)
		starve(c);
	return done ? (ssize_t)done : -EAGAIN;
}

ssize_t tx_file(struct conn *c, int fd, struct filemap *m, int in, off_t at, size_t count)
{
	tx_turn(c, fd);
	int e = failed(c);
	if (e)
		return -e;
	uint8_t *to;
	size_t n = 0;
	if (c->tx_mode == MODE_LANE && !c->tx_shut && !c->tx.poor)
		n = lane_reserve(&c->tx, count, &to);
	if (c->tx_mode == MODE_LANE && !c->tx_shut && !c->tx.poor) {
		if (n == 0) {
			starve(c);
			return -EAGAIN;
		}
		const uint8_t *from;
		ssize_t r = m ? (ssize_t)shelf_lend(&c->tx, m, at, n, &from) : 0;
		if (r > 0) {
			lane_lend(&c->tx, from, (size_t)r);
		} else {
			r = filemap_read(m, in, to, n, at); // straight from the page cache into the window
			lane_commit(&c->tx, r > 0 ? (size_t)r : 0);
		}
		if (r > 0) {
			c->tx_since = 0;
			channel_brought(c->channel);
			doorbell_ring(c, &c->peer->rx_waiters);
		}
		return r < 0 ? -errno : r;
	}
	enum { BOUNCE = 64 << 10 }; // as much as the kernel moves at once
	void *bounce = malloc(BOUNCE);
	if (!bounce)
		return -ENOMEM;
	ssize_t r = filemap_read(m, in, bounce, count < BOUNCE ? count : BOUNCE, at);
	if (r < 0)
		r = -errno;
	if (r > 0) {
		struct iovec iov = {bounce, (size_t)r};
		struct cursor cur = cursor_make(&iov, 1);
		r = tx_put(c, fd, &cur, 0, NULL);
	}
	free(bounce);
	return r;
}

HINT bool tx_room(struct conn *c)
{
	struct lane_tx copy = c->tx; // asking may change it
	return lane_writable(&copy) || (copy.poor && lane_joined(&copy)); // by TCP, which has more room
}

bool tx_plain(struct conn *c)
{
	if (!settled(c))
		return false;
	struct lane_tx copy = c->tx; // asking may change it
	return lane_writable(&copy) && !copy.broken;
}

uint32_t tx_ready(struct conn *c, int fd)
{
	tx_turn(c, fd);
	if (c->tx_mode == MODE_LANE && !c->tx_shut)
		return lane_writable(&c->tx) ? EPOLLOUT : 0;
	struct pollfd p = {fd, POLLOUT, 0};
	return !c->tx.again.left && real.poll(&p, 1, 0) > 0 && p.revents & POLLOUT ? EPOLLOUT : 0;
}

void tx_finish(struct conn *c, int fd, enum lane_how how)
{
	tx_turn(c, fd);
	for (int i = 0; !zcopy_withdraw(c) && i < 100; i++)
		real.poll(NULL, 0, 10);
	// What was handed back must be in TCP's hands before its end is. A reader that takes nothing for a second costs
	// the connection.
	for (int i = 0; c->tx.again.left && i < 100; i++) {
		struct pollfd p = {fd, POLLOUT, 0};
		uint64_t left = c->tx.again.left;
		real.poll(&p, 1, 10);
		again(c, fd);
		if (c->tx.again.left < left)
			i = 0;
	}
	if (c->tx.again.left || c->tx.advert.left || (c->tx_mode == MODE_LANE && !c->tx_shut && !lane_post(&c->tx, TAG_SHUTDOWN, how, c->tx.bytes)))
		conn_reset(c, fd, REASON_HOSTILE);
	atomic_store(&c->tx_shut, true);
	atomic_store(&c->own->shut, 1);
	doorbell_ring(c, &c->peer->rx_waiters);
}

bool tx_unread(struct conn *c)
{
	// Another thread may be writing; it is refused if that is us. Who died while
	// writing has left bytes, as far as anybody knows.
	enum lock_result got = lock_take(&c->tx_lock, &c->sole);
	struct lane_tx copy = c->tx;
	bool unread = got == LOCK_ORPHAN || copy.again.left > 0 || lane_unread(&copy) > 0;
	if (got != LOCK_REFUSED)
		lock_give(&c->tx_lock);
	return unread;
}
