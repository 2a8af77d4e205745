// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Who sends a file again and again would copy it into a window each time, over bytes that
// the reader's CPU has in its cache, and the reader would fetch them from ours. It costs much
// less to compare: what was sent before lies in a window still, and if it is what the file
// has now, it is announced there once more, and either CPU keeps what it has. All lanes of a channel
// announce the same bytes.
//
//	          pool_run           fill                           miss, unused
//	NONE ───────────────► BUSY ─────────► key of a chunk ─────────────────► BUSY
//	                                          │    ▲
//	               compare, lend, announce ◄──┘    └── BUSY: add what touches it
//
// A part is a window, and has of one chunk of a file, as long as a window, the bytes in `range`.
// These have been sent on this channel, for the peer can read all that is in our windows. It is filled
// when a piece is missed a second time, and then the part gives way that was not used for longest,
// more or less. Files differ by device, inode and chunk, of which a key is a hash: what counts
// is what comparing says.
//
// Nobody may overwrite what a reader has yet to read. A lane's `lent` has a bit for each part
// that it has lent since it was drained, and the position where its last piece out of them ends.
//
//	who lends                                 who fills
//	lent = parts and end              (1)     key = BUSY, if it is what was seen      (1)
//	the key as it was? range                  no lane has lent it, or all was taken?
//	compare; announce                         copy; range (release); key (release)
//
// (1) is sequentially consistent on both sides: either who lends sees BUSY, or another key, and goes
// without, or who fills sees that it is lent. Who adds to a part overwrites nothing in its
// range, and need not look. test/memmodel/channel has the model.
//
// Who dies while a part is BUSY takes it along until the channel ends.
#include "real.h"

#include "shelf.h"

#include "filemap.h"
#include "lane_shm.h"

enum { NONE, BUSY, VOID }; // keys; VOID: a window with nothing in it
#define KEY (1ull << 63)

#define PARTS ((1ull << SHELF_PARTS) - 1)
#define END(lent) ((lent) >> SHELF_PARTS)

_Static_assert((int)SHELF_LANES == (int)LANE_MOST, "a word for each lane");

static uint64_t range_of(uint64_t from, uint64_t to) { return from << 32 | to; }
static uint64_t from_of(uint64_t range) { return range >> 32; }
static uint64_t to_of(uint64_t range) { return range & UINT32_MAX; }

// What is asked for.
struct piece {
	struct filemap *map;
	uint64_t key;
	off_t chunk;       // its beginning in the file
	uint64_t from, to; // in the chunk
};

static uint8_t *window_of(const struct lane_tx *t, const struct shelf_part *p)
{
	return t->windows + (uint64_t)atomic_load_explicit(&p->window, memory_order_relaxed) * t->window_size;
}

static struct shelf_part *find(struct shelf *s, uint64_t key)
{
	for (unsigned i = 0; i < SHELF_PARTS; i++)
		if (atomic_load_explicit(&s->part[i].key, memory_order_relaxed) == key)
			return &s->part[i];
	return NULL;
}

static bool equal(const struct lane_tx *t, const struct shelf_part *p, const struct piece *x, uint64_t from, uint64_t to)
{
	return filemap_equal(x->map, x->chunk + (off_t)from, window_of(t, p) + from, to - from);
}

static bool copy(const struct lane_tx *t, const struct shelf_part *p, const struct piece *x, uint64_t from, uint64_t to)
{
	return from >= to || filemap_copy(x->map, x->chunk + (off_t)from, window_of(t, p) + from, to - from);
}

// lend is to be followed by an announcement.
static bool lend(struct lane_tx *t, struct shelf_part *p, const struct piece *x)
{
	struct shelf *s = &t->pool->shelf;
	uint64_t was = atomic_load_explicit(&s->lent[t->lane], memory_order_relaxed);
	uint64_t parts = END(was) <= t->window_taken ? 0 : was & PARTS, end = t->next + x->to - x->from;
	if (end >= END(SHELF_EVER))
		return false;
	for (uint32_t lanes = s->lanes; lanes <= t->lane && !atomic_compare_exchange_weak(&s->lanes, &lanes, t->lane + 1);)
		;
	atomic_store(&s->lent[t->lane], end << SHELF_PARTS | parts | 1ull << (p - s->part)); // (1)
	if (atomic_load(&p->key) == x->key) {
		uint64_t range = atomic_load_explicit(&p->range, memory_order_acquire);
		if (from_of(range) <= x->from && x->to <= to_of(range) && equal(t, p, x, x->from, x->to)) {
			if (!atomic_load_explicit(&p->used, memory_order_relaxed))
				atomic_store_explicit(&p->used, 1, memory_order_relaxed);
#ifdef __SANITIZE_THREAD__ // which does not see that the reader is between us and who fills it
			atomic_store(&s->lent[t->lane], atomic_load(&s->lent[t->lane]));
#endif
			return true;
		}
	}
	atomic_store_explicit(&s->lent[t->lane], was, memory_order_release);
	return false;
}

// seize makes a part busy that has this key.
static bool seize(struct shelf_part *p, uint64_t key) { return key != BUSY && atomic_compare_exchange_strong(&p->key, &key, BUSY); } // (1)

static void leave(struct shelf_part *p, uint64_t key) { atomic_store_explicit(&p->key, key, memory_order_release); }

// returned: nobody reads in a part that is busy.
static bool returned(const struct lane_pool *pool, const struct shelf_part *p)
{
	const struct shelf *s = &pool->shelf;
	for (uint32_t lane = 0; lane < s->lanes; lane++) {
		uint64_t lent = atomic_load(&s->lent[lane]);
		const struct lane_ctl *reader = lane_ctl(pool->peer, lane);
		if (lent >> (p - s->part) & 1 && load_acquire(&reader->window_taken) < END(lent) && load_acquire(&reader->generation) != 0)
			return false;
	}
	return true;
}

static bool fill(struct lane_tx *t, struct shelf_part *p, const struct piece *x)
{
	bool filled = copy(t, p, x, x->from, x->to);
	atomic_store_explicit(&p->range, range_of(x->from, x->to), memory_order_release);
	leave(p, filled ? x->key : VOID);
	return filled;
}

// add is for a part of this chunk. What it has of the piece must be what the file has; else it is filled anew.
static bool add(struct lane_tx *t, struct shelf_part *p, const struct piece *x)
{
	if (!seize(p, x->key))
		return false;
	uint64_t range = p->range, from = from_of(range), to = to_of(range);
	uint64_t begin = from > x->from ? from : x->from, end = to < x->to ? to : x->to; // what it has
	if (begin > end || (begin < end && !equal(t, p, x, begin, end))) {
		if (returned(t->pool, p))
			return fill(t, p, x);
		leave(p, x->key);
		return false;
	}
	bool added = copy(t, p, x, x->from, begin) && copy(t, p, x, end, x->to);
	if (added)
		atomic_store_explicit(&p->range, range_of(from < x->from ? from : x->from, to > x->to ? to : x->to), memory_order_release);
	leave(p, x->key);
	return added;
}

// window has the pool lend one to a busy part.
static bool window(struct lane_pool *pool, struct shelf_part *p)
{
	struct pool_run r;
	if (!pool_run(pool, 1, &r))
		return false;
	atomic_store_explicit(&p->window, r.window, memory_order_relaxed);
	return true;
}

// replace fills a part that is to be had.
static bool replace(struct lane_tx *t, const struct piece *x)
{
	struct shelf *s = &t->pool->shelf;
	bool windows = true;
	for (unsigned i = 0; i < 2 * SHELF_PARTS; i++) {
		struct shelf_part *p = &s->part[atomic_fetch_add(&s->hand, 1) % SHELF_PARTS];
		uint64_t is = p->key;
		if (is == NONE ? !windows : is >= KEY && atomic_exchange(&p->used, 0))
			continue;
		if (!seize(p, is))
			continue;
		if (is == NONE ? (windows = window(t->pool, p)) : returned(t->pool, p))
			return fill(t, p, x);
		leave(p, is);
	}
	return false;
}

// missed: not for the first time.
static bool missed(struct shelf *s, uint64_t key) { return atomic_exchange_explicit(&s->seen[key % SHELF_SEEN], key, memory_order_relaxed) == key; }

static uint64_t mixed(uint64_t a, uint64_t b)
{
	a = (a ^ b) * 0x9e3779b97f4a7c15ull;
	return a ^ a >> 29;
}

size_t shelf_lend(struct lane_tx *t, struct filemap *m, off_t at, size_t n, const uint8_t **from)
{
	struct shelf *s = &t->pool->shelf;
	dev_t dev;
	ino_t ino;
	size_t there = filemap_has(m, at, &dev, &ino);
	if (there == 0 || t->pool->own->windows / 8 < SHELF_PARTS)
		return 0;
	struct piece x = {.map = m, .chunk = at - at % (off_t)t->window_size};
	x.from = (uint64_t)(at - x.chunk);
	x.to = x.from + (n < there ? n : there);
	x.to = x.to < t->window_size ? x.to : t->window_size;
	x.key = mixed(mixed(mixed(1, dev), ino), (uint64_t)x.chunk) | KEY;
	struct shelf_part *p = find(s, x.key);
	if (!p || !lend(t, p, &x)) {
		if (p ? !add(t, p, &x) : !missed(s, x.key) || !replace(t, &x))
			return 0;
		p = find(s, x.key);
		if (!p || !lend(t, p, &x))
			return 0;
	}
	*from = window_of(t, p) + x.from;
	return x.to - x.from;
}

void shelf_keep(struct lane_pool *pool, uint32_t lane, uint64_t end)
{
	_Atomic uint64_t *lent = &pool->shelf.lent[lane];
	if (*lent & PARTS)
		atomic_store(lent, (end << SHELF_PARTS) | (*lent & PARTS));
}

void shelf_fresh(struct lane_pool *pool, uint32_t lane) { pool->shelf.lent[lane] = 0; }

void shelf_end(struct lane_pool *pool)
{
	struct shelf *s = &pool->shelf;
	for (unsigned i = 0; i < SHELF_PARTS; i++)
		s->part[i].key = NONE;
	for (unsigned i = 0; i < SHELF_SEEN; i++)
		s->seen[i] = 0;
	for (uint32_t lane = 0; lane < s->lanes; lane++)
		s->lent[lane] = 0;
	s->lanes = 0;
}
