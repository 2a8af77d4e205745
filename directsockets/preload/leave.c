// SPDX-License-Identifier: Apache-2.0
//
// The way back to TCP for good, for exec, options and calls that lanes do not do. The rules are
// in stream.c.
#include "real.h"

#include "stream.h"

#include <poll.h>

#include "clock.h"
#include "conn.h"
#include "doorbell.h"
#include "receive.h"
#include "transmit.h"

// tx_left is one step of the way back for our bytes, rx_left for the peer's: 1 when
// they go by TCP, 0 not yet, -1 never. Who is refused the lock is the handler of a fault, or
// the child of one, and has waited for it: who has it may wait for us.
static int tx_left(struct conn *c, int fd)
{
	int out = c->dead ? 1 : -1;
	if (stream_lock(c, fd, &c->tx_lock)) {
		tx_turn(c, fd);
		out = c->dead || (!c->tx.again.left && (c->tx_mode == MODE_TCP || c->tx_shut));
		lock_give(&c->tx_lock);
	}
	return out;
}

static int rx_left(struct conn *c, int fd)
{
	int in = c->dead ? 1 : -1;
	if (stream_lock(c, fd, &c->rx_lock)) {
		rx_freeze(c, fd);
		if (c->rx_frozen)
			rx_probe(c, fd);
		bool over = c->rx_fin || atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->closed);
		rx_turn(c, fd); // who has ended has posted all before, and answers no more
		in = c->dead || c->rx_eof || (c->rx_mode == MODE_TCP && !c->rx_pending) ? 1
		     : !c->rx_frozen						       ? -1
		     : !over							       ? 0
		     : lane_look(&c->rx) == LOOK_NONE				       ? 1
										       : -1;
		lock_give(&c->rx_lock);
	}
	return in;
}

static int both_left(struct conn *c, int fd)
{
	c->tx_back = true;
	int out = tx_left(c, fd), in = rx_left(c, fd);
	return in < out ? in : out;
}

// leave takes steps until they are done or cannot be, the peer has had 1 s, or it is gone.
static bool leave(struct conn *c, int fd, int (*step)(struct conn *c, int fd))
{
	enum { SPINS = 4, NAPS = 40, KICK = 64 }; // NAPS of some 100 us, all else in milliseconds
	for (int i = 0, ms = 0, done; ms < LEAVE_MS; i++) {
		if ((done = step(c, fd)) > 0)
			return true;
		if (atomic_load(&c->channel->live) != 1 || c->state == CONN_CLOSED)
			return false;
		doorbell_ring(c, &c->peer->rx_waiters); // even if we give up: it is asked for its part
		doorbell_ring(c, &c->peer->tx_waiters);
		if (done < 0)
			return false;
		if (i >= NAPS && ms++ % KICK == 0)
			channel_kick(c->channel);
		conn_heed(); // two processes may wait for each other
		if (i < SPINS)
			real.poll(NULL, 0, 0);
		else if (i < NAPS)
			clock_nap();
		else
			real.poll(NULL, 0, 1);
	}
	return false;
}

void stream_halt(struct conn *c, int fd)
{
	if (stream_lock(c, fd, &c->rx_lock)) {
		rx_freeze(c, fd);
		lock_give(&c->rx_lock);
	}
}

bool stream_leave_tx(struct conn *c, int fd)
{
	c->tx_off = true;
	return leave(c, fd, tx_left);
}

bool stream_back(struct conn *c, int fd) { return leave(c, fd, both_left); }

bool stream_is_back(struct conn *c, int fd) { return both_left(c, fd) > 0; }
