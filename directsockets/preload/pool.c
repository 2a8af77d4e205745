// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// What a lane may say by RMA_INFO lies anywhere in the windows of our file, so they
// are the channel's, and a lane has one only while the reader has not taken what is
// in it. A window is free, pinned by a lane that writes into it, or left with a lane:
//
//	          pool_take                pool_unpin
//	free ───────────────────► pinned ─────────────► left ──┐ pool_take by another
//	  ▲                         ▲      pool_again    │     │ lane, if drained
//	  │                         └────────────────────┤ ◄───┘
//	  └──────── pool_fresh: the lane begins anew ────┘
//
// Nobody returns a window: a program may make no call on a connection after its last
// write. Whoever needs one takes it from a lane that is drained, and touches one that
// was never used only if none of some is. So as many are touched as were busy at
// once, whatever the number of lanes, and a lane that is alone keeps its pages warm.
//
// Invariant: while `holder` names lane l unpinned, all bytes of l in the window are
// before `end`. So it is drained when the reader's window_taken is not below `end`,
// or its generation is 0, after which it reads no more. The holder word counts its
// changes: who has seen it drained takes it by exchanging just that word, and l, if
// it was quicker to pin it, has made another one of it (test/memmodel/channel).
//
// A process of the family may die anywhere. of_lane is set before the window is
// taken, so the window of a lane is known as soon as it has one, and pool_left and
// pool_fresh give it back whatever its state.
//
// Windows are touched up to their extent, which doubles when a writer finds little
// room; the budget (budget.c) grants it. What is touched stays: the seal forbids to
// punch holes. Without a window writes go by slots.
#include "real.h"

#include "pool.h"

#include <string.h>

#include "budget.h"
#include "lane_shm.h"

#define POOL_PINNED (1ull << 15)
#define POOL_LANE (POOL_PINNED - 1)
#define POOL_CHANGE (1ull << 16)

enum { LOOKS = 64 }; // at windows of others before a new one is touched

void pool_init(struct lane_pool *p, const struct lane_memory *own, const struct lane_memory *peer, uint32_t least)
{
	p->own = own;
	p->peer = peer;
	p->least = least;
}

void pool_end(struct lane_pool *p)
{
	memset(p->window, 0, p->used * sizeof p->window[0]);
	p->used = p->hand = 0;
	p->spent = 0;
}

static uint64_t pinned(uint64_t was, uint32_t lane) { return ((was | POOL_LANE | POOL_PINNED) + 1) | POOL_PINNED | (lane + 1); }

static uint64_t left(uint64_t was, uint32_t lane) { return ((was | POOL_LANE | POOL_PINNED) + 1) | (lane + 1); }

static bool holds(uint64_t holder, uint32_t lane) { return (holder & POOL_LANE) == lane + 1; }

// drained: nobody reads there any more. The word is looked at again by who takes it.
static bool drained(const struct lane_pool *p, const struct pool_window *w, uint64_t holder)
{
	if (!(holder & POOL_LANE))
		return true;
	if (holder & POOL_PINNED)
		return false;
	struct lane_ctl *reader = lane_ctl(p->peer, (uint32_t)(holder & POOL_LANE) - 1);
	return atomic_load_explicit(&reader->window_taken, memory_order_acquire) >= atomic_load(&w->end) ||
	       atomic_load_explicit(&reader->generation, memory_order_acquire) == 0;
}

bool pool_again(struct lane_pool *p, uint32_t lane, uint32_t window)
{
	struct pool_window *w = &p->window[window];
	uint64_t is = atomic_load_explicit(&w->holder, memory_order_relaxed);
	if (holds(is, lane) && is & POOL_PINNED)
		return true; // for what waits for TCP, or by who died
	return holds(is, lane) && atomic_compare_exchange_strong(&w->holder, &is, pinned(is, lane));
}

static bool take(struct lane_pool *p, uint32_t lane, uint32_t window)
{
	struct pool_window *w = &p->window[window];
	uint64_t is = atomic_load(&w->holder);
	if (!drained(p, w, is))
		return false;
	atomic_store(&p->of_lane[lane], window + 1);
	return atomic_compare_exchange_strong(&w->holder, &is, pinned(is, lane));
}

// look tries windows that have been used, from the one that was taken last.
static int look(struct lane_pool *p, uint32_t lane)
{
	uint32_t used = p->used, at = p->hand;
	for (uint32_t i = 0; i < used && i < LOOKS; i++, at++) {
		at = at < used ? at : 0;
		if (take(p, lane, at)) {
			atomic_store(&p->hand, at);
			return (int)at;
		}
	}
	atomic_store(&p->hand, at);
	return -1;
}

int pool_take(struct lane_pool *p, uint32_t lane)
{
	for (;;) {
		int found = look(p, lane);
		uint32_t next = p->used, untouched = 0;
		if (found >= 0 || next == p->own->windows || !budget_window(p, p->least, false))
			return found;
		atomic_compare_exchange_strong(&p->window[next].extent, &untouched, p->least);
		uint32_t is = next;
		if (!atomic_compare_exchange_strong(&p->used, &is, next + 1))
			atomic_fetch_sub(&p->spent, p->least); // another one was faster
		else if (take(p, lane, next))
			return (int)next;
	}
}

void pool_unpin(struct lane_pool *p, uint32_t lane, uint32_t window, uint64_t end)
{
	struct pool_window *w = &p->window[window];
	atomic_store_explicit(&w->end, end, memory_order_relaxed);
	uint64_t is = atomic_load_explicit(&w->holder, memory_order_relaxed);
	atomic_store_explicit(&w->holder, left(is, lane), memory_order_release);
}

uint32_t pool_grow(struct lane_pool *p, uint32_t window)
{
	struct pool_window *w = &p->window[window];
	if (w->extent < p->own->window && budget_window(p, w->extent, true))
		atomic_store(&w->extent, 2 * w->extent);
	return w->extent;
}

void pool_left(struct lane_pool *p, uint32_t lane)
{
	uint32_t window = p->of_lane[lane] - 1;
	uint64_t is = window < POOL_MOST ? atomic_load(&p->window[window].holder) : 0;
	// Whoever had pinned it has not said where its bytes end.
	if (holds(is, lane) && is & POOL_PINNED)
		pool_unpin(p, lane, window, ~0ull);
}

void pool_fresh(struct lane_pool *p, uint32_t lane)
{
	uint32_t window = atomic_exchange(&p->of_lane[lane], 0) - 1;
	uint64_t is = window < POOL_MOST ? atomic_load(&p->window[window].holder) : 0;
	if (holds(is, lane))
		atomic_compare_exchange_strong(&p->window[window].holder, &is, (is | POOL_LANE | POOL_PINNED) + 1);
}
