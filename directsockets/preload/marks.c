// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A set looks at its members without a system call, which is quick while they are
// few. Of many, most are quiet. So members are hot or cold: hot ones are looked at
// each time; for cold ones the peer makes a mark (ext-ds.md, section 5), a bit in
// its file that changes, and a look at one counter per channel tells whether any
// has.
//
//	          chill: quiet for some waits; ask, fence, look once more
//	hot ────────────────────────────────────────────────────────────► cold
//	    ◄────────────────────────────────────────────────────────────
//	          gather: a mark, a stir; or an event of the kernel, epoll_ctl
//
// A mark is made once for each time that the peer was asked, and it is asked again
// only after that. Two producers may still be at it for one lane, one of them late,
// and a bit that changes twice says nothing. But each is counted: if fewer bits have
// changed than marks were made, all are hot again.
//
// What changes readiness and is nothing that the peer posts is told by the kernel,
// whose events make members hot, or by conn_stir: a shutdown or reset of our own, a
// write that found no room, an option. Room is never marked: who waits for it is hot.
//
// A lane has one set that asks for its marks (`asker`); in others it stays hot.
#include "real.h"

#include "marks.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "config.h"
#include "conn.h"
#include "process.h"
#include "receive.h"
#include "stream.h"

enum {
	AT_ONCE = 32, // members that one wait looks at, to chill them
	CROWD = 8,    // so many times config.hot are more members than a cache has room for
};

// Of one channel and waiter.
struct marks {
	struct marks *next;
	struct channel *ch;
	uint32_t serial;
	int w;
	int members;    // that ask for these
	uint32_t stirs; // of the channel, as last seen
	uint64_t made;  // marks that we have seen
	uint64_t seen[LANE_MOST / 64];
	struct member *about[LANE_MOST]; // hot ones too: a mark may still come
};

static uint64_t name_of(const struct epset *e) { return (uint64_t)process_id() << 32 | (uint32_t)((uintptr_t)e >> 4); }

static void leave_hot(struct epset *e, struct member *m)
{
	struct member *last = e->hot[--e->nhot];
	e->hot[m->hot_at] = last;
	last->hot_at = m->hot_at;
}

void marks_heat(struct epset *e, struct member *m)
{
	m->quiet = e->waits;
	if (!m->cold)
		return;
	m->cold = false;
	m->hot_at = e->nhot;
	e->hot[e->nhot++] = m;
	e->heated = true;
}

static void heat_all(struct epset *e, struct marks *k)
{
	for (uint32_t lane = 0; lane < LANE_MOST; lane++)
		if (k->about[lane])
			marks_heat(e, k->about[lane]);
}

void marks_forget(struct epset *e, struct member *m)
{
	uint64_t us = name_of(e);
	if (!m->cold)
		leave_hot(e, m);
	m->cold = false;
	if (!m->marks)
		return;
	m->marks->about[m->c->lane] = NULL;
	m->marks->members--;
	m->marks = NULL;
	atomic_compare_exchange_strong(&m->c->asker, &us, 0); // in a child it is the parent's
}

void marks_clear(struct epset *e)
{
	while (e->marks) {
		struct marks *k = e->marks;
		e->marks = k->next;
		heat_all(e, k);
		free(k);
	}
	for (int i = 0; i < e->nours; i++) {
		e->ours[i]->marks = NULL;
		e->ours[i]->asked = false;
	}
}

static struct lane_head *producer(const struct marks *k) { return lane_head(&k->ch->peer); }

static uint64_t made(const struct marks *k) { return atomic_load(&producer(k)->marked[k->w].count); }

static uint64_t bits(const struct marks *k, uint32_t i) { return atomic_load(&producer(k)->mark[k->w][i]); }

static void gather(struct epset *e, struct marks *k)
{
	uint64_t count = made(k);
	if (count == k->made)
		return;
	for (uint32_t i = 0; i < LANE_MOST / 64; i++) {
		uint64_t now = bits(k, i), new = now ^ k->seen[i];
		k->seen[i] = now;
		for (; new; new &= new - 1) {
			struct member *m = k->about[i * 64 + (uint32_t)__builtin_ctzll(new)];
			k->made++;
			if (!m)
				continue;
			m->asked = false;
			marks_heat(e, m);
		}
	}
	if ((int64_t)(count - k->made) > 0) {
		heat_all(e, k);
		k->made = count;
	}
}

static void stirred(struct epset *e, struct marks *k)
{
	k->stirs = k->ch->stirs;
	for (uint32_t lane = 0; lane < LANE_MOST; lane++)
		if (k->about[lane] && k->about[lane]->c->stirred)
			marks_heat(e, k->about[lane]);
}

void marks_gather(struct epset *e)
{
	for (struct marks *k = e->marks; k; k = k->next) {
		if (k->members == 0)
			continue;
		if (atomic_load(&k->ch->live) != 1) {
			heat_all(e, k);
			continue;
		}
		if (k->stirs != k->ch->stirs)
			stirred(e, k);
		gather(e, k);
	}
}

static struct marks *marks_of(struct epset *e, struct channel *ch, int w)
{
	struct marks *k, *unused = NULL;
	for (k = e->marks; k; k = k->next) {
		if (k->ch == ch && k->serial == ch->serial && k->w == w)
			return k;
		if (k->members == 0 && k->ch->serial != k->serial)
			unused = k;
	}
	k = unused ? unused : malloc(sizeof *k);
	if (!k)
		return NULL;
	struct marks *next = unused ? unused->next : e->marks;
	memset(k, 0, sizeof *k); // an initializer would go by the stack in some compilers
	k->next = next;
	k->ch = ch;
	k->serial = ch->serial;
	k->w = w;
	k->stirs = ch->stirs;
	k->made = made(k); // before the bits: one in between makes all hot once, in vain
	for (uint32_t i = 0; i < LANE_MOST / 64; i++)
		k->seen[i] = bits(k, i);
	if (!unused)
		e->marks = k;
	return k;
}

static void ask(struct conn *c, int w)
{
	uint64_t is = c->own->rx_waiters;
	while (!atomic_compare_exchange_weak(&c->own->rx_waiters, &is, (MASK_ASKED(is) + 1) << 16 | (uint64_t)w << 8 | (is & MASK_RING)))
		;
}

// idle: nothing but what is marked or told can make it ready.
HINT static bool idle(const struct member *m)
{
	struct conn *c = m->c;
	bool edge = m->events & EPOLLET;
	if (m->disabled)
		return true;
	if (c->rx_hint || c->rx_frozen || rx_waits(c) || (edge && (m->kernel || m->edge || m->lowats != c->lowats)))
		return false;
	if (c->tx_mode == MODE_LANE && atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->go_back))
		return false;
	if (m->events & EPOLLOUT && (!stream_room(c) || c->starved != m->starved))
		return false;
	return edge || !stream_glance(c, m->events);
}

static void chill(struct epset *e, struct member *m)
{
	uint64_t nobody = 0;
	if (m->set || m->starving || m->deleted || !conn_engaged(m->c) || !m->c->channel->peer.base || !idle(m))
		return;
	int line = e->perch && !e->poor ? perch_line(e->perch, m->c->channel) : -1;
	int w = line < 0 ? 0 : e->perch->line[line].w;
	struct marks *k = line < 0 ? NULL : marks_of(e, m->c->channel, w);
	if (!k || (m->marks ? m->marks != k : !atomic_compare_exchange_strong(&m->c->asker, &nobody, name_of(e))))
		return;
	if (!m->marks) {
		m->marks = k;
		k->about[m->c->lane] = m;
		k->members++;
	}
	if (!m->asked)
		ask(m->c, w);
	m->asked = true;
	m->c->stirred = false;
	m->cold = true;
	leave_hot(e, m);
	atomic_thread_fence(memory_order_seq_cst); // then look: see doorbell.c
	if (!idle(m))
		marks_heat(e, m);
}

void marks_chill(struct epset *e)
{
	e->waits++;
	if ((uint32_t)e->nhot <= config.hot)
		return;
	// To have a member cold and hot again costs what some 50 looks cost, as long as all
	// that is looked at stays in the cache. Of a crowd it does not, and then 4 looks: such
	// a set chills as many in a wait as one can have made hot, and soon.
	bool crowd = (uint64_t)e->nours > CROWD * (uint64_t)config.hot && (uint64_t)e->nhot > 2 * (uint64_t)config.hot;
	unsigned some = crowd ? AT_ONCE + (unsigned)e->nhot / 4 : AT_ONCE, patience = crowd ? config.hot / 32 : config.hot / 4;
	for (unsigned i = 0; i < some && e->nhot > 0; i++) {
		struct member *m = e->hot[e->chilling++ % (unsigned)e->nhot];
		if (e->waits - m->quiet > patience)
			chill(e, m);
	}
}
