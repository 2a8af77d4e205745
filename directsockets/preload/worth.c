// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A lane costs as much as some ten round trips by TCP, more where those are quick, so a
// connection that ends soon after it was upgraded had better stayed there. What is
// coming nobody knows, but most services have a habit. So each end of a connection that
// was considered for a lane notes, when it ends, whether it was long enough to be worth
// one, in a counter of the server's port: up for a short one, down for a long one,
// between 0 and MOST, as a branch predictor does it. From BRIEF on most are short, and
// the next are considered later: there a short one has ended, and a long one has lost
// little.
//
// Two ends that count at once may lose one of both, ports share counters, and whoever
// writes the board can put anything there: it is a hint, and costs or saves time only.
#include "real.h"

#include "worth.h"

#include "board.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "far.h"
#include "heirs.h"
#include "passing.h"
#include "presence.h"

enum {
	STEP = 8,        // calls between two looks at the board, in the end
	BRIEF = 2,       // connections, and
	MOST = 6,        // the most that count
	LATER_CALLS = 8, // times as many calls, if most are short,
	LATER_BYTES = 256,
	LONELY = 8,      // looks at the board, and
	LONELY_NS = 250 * 1000 * 1000, // since the first of them: no peer will show up soon
	UNSEEN_MOST = 64, // times the threshold: then EXN_DS_REQUIRE wants to be told that nobody was seen to wait
	WORTH = 5, // times the threshold and more: it was worth a lane
};

static bool below(const struct conn *c, uint32_t calls, uint32_t bytes)
{
	return c->calls < config.calls * calls && c->tcp_rx + c->tcp_tx < config.bytes * bytes;
}

// looking: the board and the port's habit say so, without a system call.
static bool looking(struct conn *c)
{
	if (!board_meet(c->port, c->active) && !config.require) {
		// Nothing was asked of the kernel, so this may go on for ever. A peer that is at the
		// other end may be slower, so nobody says yet that there is none.
		if (!c->lonely && c->looks == 0)
			c->offered_ns = clock_ns();
		else if (!c->lonely)
			c->lonely = c->looks >= LONELY && clock_ns() - c->offered_ns > LONELY_NS;
		c->due = c->calls + (c->looks < 64 ? c->looks++, 1u : STEP);
		return false;
	}
	c->considered = config.guess && c->port;
	if (c->considered && below(c, LATER_CALLS, LATER_BYTES) &&
	    atomic_load_explicit(board_brief(c->port), memory_order_relaxed) >= BRIEF) {
		atomic_store(&c->reason, REASON_BRIEF);
		c->due = c->calls + 4;
		return false;
	}
	return true;
}

// shared: another process holds it, for now.
static void shared(struct conn *c)
{
	atomic_store(&c->reason, REASON_SHARED);
	c->due = c->calls + c->calls / 8 + 1;
}

bool worth_now(struct conn *c, int fd)
{
	if (conn_shared(c) || c->passes || !passing_ours(c, fd)) {
		shared(c); // a forking server closes its copy soon
		return false;
	}
	if (c->exposed) {
		rendezvous_stay(c, fd, REASON_SHARED);
		return false;
	}
	if (c->nonblock && !c->watched) { // by anything that we saw, so far: it would not be told of bytes on a lane
		if (config.require && c->calls >= (uint64_t)config.calls * UNSEEN_MOST) {
			rendezvous_stay(c, fd, REASON_RAW);
			return false;
		}
		atomic_store(&c->reason, REASON_RAW);
		c->due = c->calls + c->calls / 8 + 1;
		return false;
	}
	if (!presence_prepared()) {
		rendezvous_stay(c, fd, REASON_DIRECTORY);
		return false;
	}
	if (heirs_left(c, fd)) {
		shared(c);
		return false;
	}
	if (!looking(c)) {
		if (c->lonely && c->reason != REASON_NO_PEER && c->reason != REASON_PLAIN)
			atomic_store(&c->reason, far_missing(c, fd));
		return false;
	}
	return true;
}

HINT void worth_ended(struct conn *c)
{
	if (!c->considered)
		return;
	// Bytes do not count: those of one long call have gone by TCP before there is a lane.
	uint64_t calls = c->calls + (c->engaged ? c->tx.slot + c->rx.slot : 0);
	bool worth = calls >= (uint64_t)config.calls * WORTH;
	_Atomic uint32_t *brief = board_brief(c->port);
	uint32_t is = atomic_load_explicit(brief, memory_order_relaxed);
	if (worth && is > 0)
		atomic_store_explicit(brief, is > MOST ? MOST : is - 1, memory_order_relaxed);
	else if (!worth && is < MOST)
		atomic_store_explicit(brief, is + 1, memory_order_relaxed);
}
