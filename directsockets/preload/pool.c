// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// What a lane may say by RMA_INFO lies anywhere in the windows of our file, so they
// are the channel's, and a lane has one only while the reader has not taken what is
// in it. A window is free, pinned by a lane that writes into it, or left with a lane:
//
//	          pool_take                pool_unpin
//	free ───────────────────► pinned ─────────────► left ──┐ pool_take by any
//	  ▲                         ▲      pool_again    │     │ lane, if drained
//	  │                         └────────────────────┤ ◄───┘
//	  └──────── pool_fresh: the lane begins anew ────┘
//
// Nobody returns a window: a program may make no call on a connection after its last
// write. Whoever needs one takes it from a lane that is drained, and touches one that
// was never used only if none of some is. So as many are touched as were busy at
// once, whatever the number of lanes, and a lane that is alone keeps its pages warm.
//
// Who writes much wants the contrary. What the reader has just read lies in its CPU's cache,
// and to overwrite that costs up to five times what it costs to overwrite what has gone to the
// cache that they share. So a lane that has filled its window leaves that and goes on in the
// one that was taken longest ago (pool_onward), and ROUND are touched for that: more than
// the cache of a CPU has room for, and less than the shared one.
//
// Invariant: while `holder` names lane l unpinned, all bytes of l in the window are
// before `end`. So it is drained when the reader's window_taken is not below `end`,
// or its generation is 0, after which it reads no more. The holder word counts its
// changes: who has seen it drained takes it by exchanging just that word, and l, if
// it was quicker to pin it, has made another one of it (test/memmodel/channel).
//
// A process of the family may die anywhere. Which windows a lane has is in their holder
// words, so pool_left and pool_fresh look at all that were used, and give those back.
//
// A run is windows side by side that a registered buffer has. Its holder is POOL_RUN, which
// is no lane, so they are pinned for all lanes, until the last process that has the buffer
// gives it back; the first window's `end` counts these. Runs are looked for from the end
// of the file, lanes begin at its beginning, and an eighth is left to them alone. All windows
// of a run have one holder word, which no later one equals, since a channel's end counts as a
// change: so a child that outlives the channel returns nothing of another one's. Who
// dies with a run, or takes one and dies before anybody has it, keeps these windows from the others
// until the channel ends, and nothing else.
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
#define POOL_RUN POOL_LANE // lane + 1 is less

// The first window's `end` in a run: no position of a lane, a part of the holder, and how
// many processes have it.
#define RUN_MARK (1ull << 63)
#define RUN_MOST 0xffffull

enum { LOOKS = 64 }; // at windows of others before a new one is touched
enum { ROUND = 16, ROUND_PART = 8 }; // windows to go round in, if that is an eighth of all or less
enum { NONE = -1, FASTER = -2 };

void pool_init(struct lane_pool *p, const struct lane_memory *own, const struct lane_memory *peer, uint32_t least)
{
	p->own = own;
	p->peer = peer;
	p->least = least;
}

static uint64_t freed(uint64_t was) { return (was | POOL_LANE | POOL_PINNED) + 1; }

// anew: the window is another channel's, but its changes go on being counted.
static void anew(struct pool_window *w)
{
	atomic_store(&w->holder, freed(w->holder));
	w->end = 0;
	w->extent = 0;
}

void pool_end(struct lane_pool *p)
{
	uint32_t runs = p->deep ? p->own->windows - p->deep : p->used;
	for (uint32_t w = 0; w < p->used; w++)
		anew(&p->window[w]);
	for (uint32_t w = runs > p->used ? runs : p->used; p->deep && w < p->own->windows; w++)
		anew(&p->window[w]);
	shelf_end(p);
	p->used = p->hand = p->deep = 0;
	p->spent = 0;
}

static uint64_t pinned(uint64_t was, uint32_t lane) { return ((was | POOL_LANE | POOL_PINNED) + 1) | POOL_PINNED | (lane + 1); }

static uint64_t left(uint64_t was, uint32_t lane) { return ((was | POOL_LANE | POOL_PINNED) + 1) | (lane + 1); }

static bool holds(uint64_t holder, uint32_t lane) { return (holder & POOL_LANE) == lane + 1; }

static bool is_run(uint64_t holder) { return (holder & (POOL_LANE | POOL_PINNED)) == (POOL_RUN | POOL_PINNED); }

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
	return atomic_compare_exchange_strong(&w->holder, &is, pinned(is, lane));
}

// look tries windows that have been used, from the one that was taken last.
static int look(struct lane_pool *p, uint32_t lane, uint32_t at)
{
	uint32_t used = p->used;
	for (uint32_t i = 0, looks = 0; i < used && looks < LOOKS; i++, at++) {
		at = at < used ? at : 0;
		if (is_run(p->window[at].holder))
			continue;
		looks++;
		if (take(p, lane, at)) {
			atomic_store(&p->hand, at);
			return (int)at;
		}
	}
	atomic_store(&p->hand, at);
	return NONE;
}

// touch takes the first window that was never used. NONE: there is none, or no memory for it;
// FASTER: somebody else has it now.
static int touch(struct lane_pool *p, uint32_t lane)
{
	uint32_t next = p->used, untouched = 0;
	if (next == p->own->windows || is_run(p->window[next].holder))
		return NONE;
	if (p->window[next].extent == 0) { // else a run has paid it, or who was faster
		if (!budget_window(p, p->least, false))
			return NONE;
		if (!atomic_compare_exchange_strong(&p->window[next].extent, &untouched, p->least))
			atomic_fetch_sub(&p->spent, p->least);
	}
	uint32_t is = next;
	return atomic_compare_exchange_strong(&p->used, &is, next + 1) && take(p, lane, next) ? (int)next : FASTER;
}

int pool_take(struct lane_pool *p, uint32_t lane)
{
	int found;
	while ((found = look(p, lane, p->hand)) < 0 && (found = touch(p, lane)) == FASTER)
		;
	return found;
}

int pool_onward(struct lane_pool *p, uint32_t lane)
{
	if (p->own->windows / ROUND_PART < ROUND)
		return NONE;
	int found = p->used < ROUND ? touch(p, lane) : NONE;
	return found >= 0 ? found : look(p, lane, p->hand + 1);
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
	for (uint32_t w = 0; w < p->used; w++) {
		uint64_t is = atomic_load(&p->window[w].holder);
		// Whoever had pinned it has not said where its bytes end.
		if (holds(is, lane) && is & POOL_PINNED)
			pool_unpin(p, lane, w, ~0ull);
	}
}

void pool_fresh(struct lane_pool *p, uint32_t lane)
{
	shelf_fresh(p, lane);
	for (uint32_t w = 0; w < p->used; w++) {
		uint64_t is = atomic_load(&p->window[w].holder);
		if (holds(is, lane))
			atomic_compare_exchange_strong(&p->window[w].holder, &is, freed(is));
	}
}

// seize exchanges the holders of a run; false: a lane was faster.
static bool seize(struct lane_pool *p, const struct pool_run *r)
{
	uint32_t i = 0;
	for (; i < r->count; i++) {
		struct pool_window *w = &p->window[r->window + i];
		uint64_t is = atomic_load(&w->holder);
		if (!drained(p, w, is) || is / POOL_CHANGE >= r->holder / POOL_CHANGE || !atomic_compare_exchange_strong(&w->holder, &is, r->holder))
			break;
	}
	if (i == r->count)
		return true;
	while (i-- > 0)
		atomic_store_explicit(&p->window[r->window + i].holder, freed(r->holder), memory_order_release);
	return false;
}

// fund has the budget grant what was not touched yet.
static bool fund(struct lane_pool *p, const struct pool_run *r)
{
	uint64_t touched = 0, before = 0;
	for (uint32_t i = 0; i < r->count; i++)
		touched += p->window[r->window + i].extent;
	if (!budget_window(p, (uint64_t)r->count * p->own->window - touched, true))
		return false;
	for (uint32_t i = 0; i < r->count; i++)
		before += atomic_exchange(&p->window[r->window + i].extent, p->own->window);
	atomic_fetch_sub(&p->spent, before - touched); // pool_take has paid that meanwhile
	return true;
}

static void release(struct lane_pool *p, const struct pool_run *r)
{
	for (uint32_t i = 0; i < r->count; i++) {
		uint64_t is = r->holder;
		atomic_compare_exchange_strong(&p->window[r->window + i].holder, &is, freed(is));
	}
}

static uint64_t had_by(const struct pool_run *r, uint64_t processes)
{
	return RUN_MARK | (r->holder & ~(POOL_CHANGE - 1) & ~RUN_MARK) | processes;
}

// found notes a run that is ours.
static bool found(struct lane_pool *p, const struct pool_run *r)
{
	uint32_t deep = p->deep, from = p->own->windows - r->window;
	while (deep < from && !atomic_compare_exchange_weak(&p->deep, &deep, from))
		;
	if (!fund(p, r)) {
		release(p, r);
		return false;
	}
	atomic_store(&p->window[r->window].end, had_by(r, 1));
	return true;
}

bool pool_run(struct lane_pool *p, uint32_t count, struct pool_run *r)
{
	uint32_t least = p->own->windows / 8 ? p->own->windows / 8 : 1, n = 0;
	uint64_t latest = 0;
	for (uint32_t w = p->own->windows; w-- > least;) {
		uint64_t is = atomic_load(&p->window[w].holder);
		if (!drained(p, &p->window[w], is)) {
			n = 0;
			latest = 0;
			continue;
		}
		latest = is > latest ? is : latest;
		if (++n < count)
			continue;
		*r = (struct pool_run){w, count, freed(latest) | POOL_PINNED | POOL_RUN};
		if (seize(p, r))
			return found(p, r);
		n = 0; // what is left of it is found by the next one that looks
		latest = 0;
	}
	return false;
}

// counts adds to how many processes have a run; what is left, or -1 of one that is over.
static int64_t counts(struct lane_pool *p, const struct pool_run *r, int by)
{
	struct pool_window *w = &p->window[r->window];
	uint64_t is = atomic_load(&w->end), of = had_by(r, 0);
	do {
		uint64_t n = is - of;
		if (atomic_load(&w->holder) != r->holder || n == 0 || n > RUN_MOST || (by > 0 && n == RUN_MOST))
			return -1;
	} while (!atomic_compare_exchange_weak(&w->end, &is, is + (uint64_t)(int64_t)by));
	return (int64_t)(is - of) + by;
}

bool pool_share(struct lane_pool *p, const struct pool_run *r) { return counts(p, r, +1) > 0; }

void pool_return(struct lane_pool *p, const struct pool_run *r)
{
	if (counts(p, r, -1) == 0)
		release(p, r);
}

bool pool_last(const struct lane_pool *p, const struct pool_run *r)
{
	return atomic_load(&p->window[r->window].end) == had_by(r, 1);
}
