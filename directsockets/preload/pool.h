// SPDX-License-Identifier: Apache-2.0
//
// The windows of a memory file of ours, which its lanes borrow.
#ifndef POOL_H
#define POOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shelf.h"

enum { POOL_MOST = 4096 }; // windows

struct lane_memory;

struct pool_window {
	_Atomic uint64_t holder; // count of changes, POOL_PINNED, lane + 1; see pool.c
	_Atomic uint64_t end;    // its holder's bytes end at this position; of a run's first one, who has it
	_Atomic uint32_t extent; // bytes of it that may have been touched
};

// In the memory of the family, as the connections are that use it.
struct lane_pool {
	const struct lane_memory *own, *peer;
	uint32_t least;            // bytes of a window that a lane gets at first
	bool dated;                // who takes the bytes wants to know when they were posted (lane_date)
	_Atomic uint32_t used;     // windows below this one have been
	_Atomic uint32_t hand;     // where to look for one next
	_Atomic uint32_t deep;     // so many of the last ones may have been in runs
	_Atomic uint64_t spent;    // bytes that the budget has granted
	struct pool_window window[POOL_MOST];
	struct shelf shelf;
};

void pool_init(struct lane_pool *p, const struct lane_memory *own, const struct lane_memory *peer, uint32_t least);
void pool_end(struct lane_pool *p);

// pool_again pins the window that the lane has had; false: another lane has it now,
// so nothing of this one was left there. pool_take pins any; -1 when there is none.
bool pool_again(struct lane_pool *p, uint32_t lane, uint32_t window);
int pool_take(struct lane_pool *p, uint32_t lane);

// pool_onward pins another one than the lane has, which keeps what is in that; -1: there is none.
int pool_onward(struct lane_pool *p, uint32_t lane);

// pool_unpin: from now on another lane may take it when the reader has all before end.
void pool_unpin(struct lane_pool *p, uint32_t lane, uint32_t window, uint64_t end);

// pool_grow doubles the extent of a pinned window, if it may; it returns it.
uint32_t pool_grow(struct lane_pool *p, uint32_t window);

// pool_left: our end of the lane is over, and its windows are free when the reader's
// is too. pool_fresh: both were, and the lane begins anew.
void pool_left(struct lane_pool *p, uint32_t lane);
void pool_fresh(struct lane_pool *p, uint32_t lane);

// A run is windows that lie side by side, for a registered buffer (buffer.c).
struct pool_run {
	uint32_t window, count;
	uint64_t holder; // of all of them: while it is that, they are this run
};

// pool_run takes one; false: there is none, or the budget has not as much.
bool pool_run(struct lane_pool *p, uint32_t count, struct pool_run *r);

// pool_share: one more process of the family has it; false: it is over. pool_return: one
// has it no more, and after the last one the windows are for lanes. Of a run that is over,
// also with its channel, they do nothing. pool_last: nobody else has it.
bool pool_share(struct lane_pool *p, const struct pool_run *r);
void pool_return(struct lane_pool *p, const struct pool_run *r);
bool pool_last(const struct lane_pool *p, const struct pool_run *r);

#endif
