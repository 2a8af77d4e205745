// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A waiter has a doorbell, an eventfd made by the side that sleeps on it, and a
// sleep epoch in that side's sealed memory. Each side of a channel has
// LANE_WAITERS of them.
//
//	sleeper                                  producer
//	  mask |= w      (who to wake)             post slot      (release)
//	  epoch becomes a new odd number           fence          (1)
//	  fence          (2)                       read mask
//	  look again at the lane                   read epoch[w]
//	  sleep                                    odd and not yet rung: ring
//	  epoch becomes even
//
// With both fences sequentially consistent, either the sleeper's second look
// sees the slot or the producer's read sees the odd epoch: there is no order
// in which both miss. Without (1) the store of the slot may still sit in the
// producer's store buffer when it reads an even epoch, without (2) likewise
// the other way round: x86 does reorder a store with a later load.
//
// A doorbell has the value 1 for ever: it is rung by adding 0, which never blocks
// and never fails, and watched edge-triggered by an epoll descriptor of each
// sleeper (perch.c). So nobody empties it and nobody can steal a ring: everyone
// who sleeps on it wakes. Hence any number of sleepers, threads, epoll sets and
// processes of a family, may share a waiter; they do when there are more of them
// than waiters. Sharing costs wake-ups that find nothing, nothing else:
//
//	arm     each makes a new odd epoch, for which nobody has rung yet
//	disarm  makes it even only if nobody shares the waiter; left odd, it costs
//	        one ring at most
//	mask    a bit is taken back only if nobody shares the waiter; who begins
//	        to share it meanwhile is woken and sets it again
//
// Who waits for room sets its bit in the mask for credit if it finds none. In an edge-triggered
// set it may find some, and sleep; another thread of its program then fills the lane, and waits
// for it to be told of room. So who fills looks for such sleepers:
//
//	sleeper                                  filler, of the same program
//	  epoch becomes odd; fence                 finds no room, counts that; fence
//	  no room: mask |= w; fence                read epoch[w]: odd: wake it, to look again
//	  look again: room, and counted?
//	  sleep
//
// Either the filler sees the odd epoch, or the sleeper the count, and that there is no room. A
// sleeper that is in the mask already is woken, too: credit may have come before it was.
//
// Who waits for room says before it sleeps how much (lane_ask), and the reader, which takes bytes
// in parts as small as it likes, does not wake it for less: it looks at that behind (1), as at the
// mask, so what it misses the second look sees as credit. Several who wait for one lane share the
// words, and write them without a lock; but whatever they hold is no more than what was posted. So
// who reads all rings, and who does not leaves bytes to read.
//
// A producer rings once per odd epoch, and remembers that after it has rung: one
// that dies in between has another ring again.
//
// Who sleeps has mostly a connection on the channel, which keeps its memory. An epoll set arms all
// channels that it had a member on, and then another thread may end the last connection:
//
//	toucher                                 who ends the channel (channel.c)
//	  count itself; fence                     serial := 0; fence
//	  the serial is that of the line?         nobody counted: unmap
//	    epoch of the line's memory              else leave the head until that is so
//	  count itself out                           (release)
//
// Either the toucher finds another serial, or who ends the channel finds it counted (model "hazard"):
// all four accesses are sequentially consistent, the fences with them.
// A place that is taken anew has another serial and other memory, so the epoch that is
// written is that of the old one. The count has stripes for threads not to share a line for it.
#include "real.h"

#include "doorbell.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "channel.h"
#include "config.h"
#include "files.h"
#include "single.h"

int doorbell_make(void) { return files_keep(eventfd(1, EFD_NONBLOCK | EFD_CLOEXEC)); }

bool doorbell_legal(int fd)
{
	char link[40], kind[32];
	snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
	ssize_t n = readlink(link, kind, sizeof kind - 1);
	if (n <= 0)
		return false;
	kind[n] = 0;
	return !strcmp(kind, "anon_inode:[eventfd]");
}

// Of the product only; tests have it be late (test/ds/ccode/slowwake.h).
#ifndef DOORBELL_LATE
#define DOORBELL_LATE()
#endif

static void ring(int fd)
{
	uint64_t nothing = 0;
	int saved = errno;
	DOORBELL_LATE();
	if (real.write(fd, &nothing, sizeof nothing) < 0)
		errno = saved; // closed: the channel is over
}

int doorbell_claim(struct channel *ch)
{
	for (;;) {
		int least = 0;
		uint32_t users = ~0u;
		for (int w = 0; w < LANE_WAITERS && users > 0; w++) {
			uint32_t n = atomic_load(&ch->users[w]);
			if (n < users) {
				users = n;
				least = w;
			}
		}
		if (atomic_compare_exchange_strong(&ch->users[least], &users, users + 1))
			return least;
	}
}

enum { STRIPES = 16, PAGE = 4096 };
static struct {
	_Atomic uint32_t touchers;
	uint8_t pad[60];
} stripes[STRIPES] __attribute__((aligned(64)));

_Atomic uint32_t *doorbell_touch(const void *who)
{
	_Atomic uint32_t *stripe = &stripes[(uintptr_t)who / PAGE % STRIPES].touchers;
	single_inc(stripe, single_thread());
	return stripe;
}

void doorbell_touched(_Atomic uint32_t *stripe) { single_dec(stripe, single_thread()); }

bool doorbell_untouched(void)
{
	for (int i = 0; i < STRIPES; i++)
		if (atomic_load(&stripes[i].touchers))
			return false;
	return true;
}

void doorbell_child(void) { memset(stripes, 0, sizeof stripes); }

void doorbell_watch(_Atomic uint64_t *mask, int w)
{
	uint64_t bit = 1ull << w;
	if (!(atomic_load_explicit(mask, memory_order_relaxed) & bit))
		atomic_fetch_or(mask, bit);
}

void doorbell_unwatch(struct channel *ch, _Atomic uint64_t *mask, int w)
{
	uint64_t bit = 1ull << w;
	if (atomic_load(&ch->users[w]) > 1)
		return;
	atomic_fetch_and(mask, ~bit);
	if (atomic_load(&ch->users[w]) > 1) { // since a moment: it may have set the bit before
		atomic_fetch_or(mask, bit);
		doorbell_wake(ch, w);
	}
}

void doorbell_arm(struct lane_head *own, int w)
{
	_Atomic uint64_t *e = &own->waiter[w].epoch;
	uint64_t v = atomic_load_explicit(e, memory_order_relaxed);
	while (!atomic_compare_exchange_weak(e, &v, (v + 1) | 1))
		;
	atomic_thread_fence(memory_order_seq_cst);
}

void doorbell_disarm(struct channel *ch, struct lane_head *own, int w)
{
	_Atomic uint64_t *e = &own->waiter[w].epoch;
	uint64_t v = atomic_load_explicit(e, memory_order_relaxed);
	// Who comes to share it after this question makes the epoch another one.
	if (v & 1 && atomic_load(&ch->users[w]) == 1)
		atomic_compare_exchange_strong(e, &v, v + 1);
}

void doorbell_release(struct channel *ch, struct lane_head *own, int w)
{
	if (atomic_load(&ch->live) == 1)
		doorbell_disarm(ch, own, w);
	atomic_fetch_sub(&ch->users[w], 1);
}

// mark tells a waiter of the peer which lane it is that has something new: once for
// each time that it asked.
static void mark(struct conn *c, uint64_t mask)
{
	uint64_t was = c->marked, w = MASK_MARK(mask);
	if (was == MASK_ASKED(mask) || !atomic_compare_exchange_strong(&c->marked, &was, MASK_ASKED(mask)))
		return;
	struct lane_head *h = lane_head(&c->channel->own);
	atomic_fetch_xor(&h->mark[w][c->lane / 64], 1ull << (c->lane % 64));
	atomic_fetch_add(&h->marked[w].count, 1);
	atomic_thread_fence(memory_order_seq_cst); // as above, before the epoch is read
}

// wake rings who sleeps, after the fence.
static void wake(struct conn *c, const _Atomic uint64_t *mask)
{
	struct channel *ch = c->channel;
	uint64_t m = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)mask, memory_order_relaxed);
	if (MASK_ASKED(m))
		mark(c, m);
	for (m &= MASK_RING; m; m &= m - 1) {
		int w = __builtin_ctzll(m);
		uint64_t e = atomic_load_explicit(&lane_head(&ch->peer)->waiter[w].epoch, memory_order_relaxed);
		if (!(e & 1) || atomic_load_explicit(&ch->rung[w], memory_order_relaxed) == e)
			continue;
		ring(ch->ring_peer[w]);
		atomic_store_explicit(&ch->rung[w], e, memory_order_relaxed);
	}
}

void doorbell_ring(struct conn *c, const _Atomic uint64_t *mask)
{
	atomic_thread_fence(memory_order_seq_cst);
	wake(c, mask);
}

void doorbell_room(struct conn *c)
{
	atomic_thread_fence(memory_order_seq_cst);
	if (load_acquire(&c->peer->tx_waiters) && (config.test_eager || lane_due(c->own, c->peer)))
		wake(c, &c->peer->tx_waiters);
}

void doorbell_rouse(struct conn *c, bool all)
{
	struct channel *ch = c->channel;
	atomic_thread_fence(memory_order_seq_cst);
	uint64_t asked = atomic_load_explicit(&c->own->rx_waiters, memory_order_relaxed);
	uint64_t who = (asked & MASK_RING) | (MASK_ASKED(asked) ? 1ull << MASK_MARK(asked) : 0);
	if (all)
		who |= atomic_load_explicit(&c->own->tx_waiters, memory_order_relaxed) & MASK_RING;
	for (; who; who &= who - 1) {
		int w = __builtin_ctzll(who);
		if (atomic_load_explicit(&lane_head(&ch->own)->waiter[w].epoch, memory_order_relaxed) & 1)
			doorbell_wake(ch, w);
	}
}

void doorbell_wake(struct channel *ch, int w)
{
	channel_brought(ch); // it looks like a ring of the peer's
	ring(ch->ring_own[w]);
}
