// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A lane is one direction of a connection: a ring of VELO slots and a window
// for PUTs, both in the writer's memory, and credit in the reader's.
//
//	writer's file                                  reader's file
//	slot k: payload, then status (release) ──────► looks at status (acquire)
//	window: bytes, then RMA_INFO in slot k ──────► copies out of the window
//	room  ◄──────────────── (acquire) slots_taken, window_taken (release)
//
// Status word: valid[63] 0[62:50] len[49:38] tag[37:32] 0[31:0]. Valid is the
// lap parity: 1 on the first pass over a zeroed ring, 0 on the second. There is
// no shared head counter: the reader looks at the slot it waits for.
//
// Order, writer to reader: payload and window bytes are plain stores before
// the release store of the status word; the reader loads that word with
// acquire before it touches them. Reader to writer: the reader's loads of
// payload come before its release store of credit, and the writer loads credit
// with acquire before it overwrites them. So on x86 these are plain moves, on
// arm64 stlr and ldar. Sleeping adds the one store-load order that neither
// gives; doorbell.c has it.
//
// Credit for window bytes counts those that went by windows, wherever they lay. A
// writer borrows one (pool.c) and uses its first bytes, `extent` of them, as a ring;
// a piece never crosses the end of that. A window found empty starts again at its
// beginning, where the cache is warm. One in which little room is left grows. At the end
// of one the writer goes on in another, if it can be had: see pool.c.
//
// Trust: from the peer's file come status words, payloads and credit. Each is
// loaded once into a private copy, then checked: tag and length legal, reserved
// bits zero, a piece inside the windows, credit neither above what was posted nor below what was seen. Copying stream bytes
// that the writer changes meanwhile gives the program other bytes of that
// peer's choice, which the peer could have sent anyway.
#include "lane_shm.h"

#include <string.h>

bool lane_geometry_legal(uint32_t lanes, uint32_t slots, uint32_t windows, uint32_t window)
{
	return lanes >= 2 && lanes <= LANE_MOST && slots >= 16 && slots <= 1024 && !(slots & (slots - 1)) && windows >= 1 &&
	       windows <= POOL_MOST && window >= (16 << 10) && window <= (16 << 20) && !(window & (window - 1));
}

uint64_t lane_memory_size(uint32_t lanes, uint32_t slots, uint32_t windows, uint32_t window)
{
	uint64_t n = LANE_HEAD + (uint64_t)lanes * LANE_CTL + (uint64_t)lanes * slots * LANE_SLOT;
	n = (n + 4095) & ~4095ull;
	return n + (uint64_t)windows * window;
}

static uint8_t *ring_of(const struct lane_memory *m, uint32_t lane)
{
	return m->base + LANE_HEAD + (uint64_t)m->lanes * LANE_CTL + (uint64_t)lane * m->slots * LANE_SLOT;
}

static uint64_t windows_size(const struct lane_memory *m) { return (uint64_t)m->windows * m->window; }

static uint8_t *windows_of(const struct lane_memory *m) { return m->base + m->size - windows_size(m); }

struct cursor cursor_make(const struct iovec *iov, int n)
{
	struct cursor c = {iov, n, 0, 0};
	for (int i = 0; i < n; i++)
		c.left += iov[i].iov_len;
	return c;
}

static size_t cursor_span(struct cursor *c)
{
	while (c->n > 0 && c->off == c->iov->iov_len) {
		c->iov++;
		c->n--;
		c->off = 0;
	}
	return c->n > 0 ? c->iov->iov_len - c->off : 0;
}

// copy is memcpy where that is fast. For large n glibc may use `rep movsb`, which on AMD's Zen 3
// and 4 is 16 times slower where `to` lies up to 31 bytes further into a page than `from`. So
// lie the memory that malloc gives, 16 bytes into a page, and a window. Parts of 1 KiB are
// below what glibc does so, and as fast as the rest is; 64 is to be sure.
static void copy(uint8_t *to, const uint8_t *from, size_t n)
{
	enum { PART = 1024, PAGE = 4096, NEAR = 64 };
	size_t ahead = ((uintptr_t)to - (uintptr_t)from) % PAGE;
	if (ahead == 0 || ahead >= NEAR) {
		memcpy(to, from, n);
		return;
	}
	for (size_t k; n > 0; to += k, from += k, n -= k) {
		k = n < PART ? n : PART;
		memcpy(to, from, k);
	}
}

static void cursor_move(struct cursor *c, uint8_t *to, const uint8_t *from, size_t n)
{
	while (n > 0) {
		size_t k = cursor_span(c);
		if (k > n)
			k = n;
		if (k == 0)
			return;
		uint8_t *at = (uint8_t *)c->iov->iov_base + c->off;
		if (to) {
			copy(to, at, k);
			to += k;
		} else if (from) {
			copy(at, from, k);
			from += k;
		}
		c->off += k;
		c->left -= k;
		n -= k;
	}
}

void cursor_get(struct cursor *c, void *to, size_t n) { cursor_move(c, to, NULL, n); }
void cursor_put(struct cursor *c, const void *from, size_t n) { cursor_move(c, NULL, from, n); }
void cursor_skip(struct cursor *c, size_t n) { cursor_move(c, NULL, NULL, n); }

void lane_tx_reset(struct lane_tx *t, struct lane_pool *pool, uint32_t lane)
{
	*t = (struct lane_tx){
		.ring = ring_of(pool->own, lane),
		.windows = windows_of(pool->own),
		.peer = lane_ctl(pool->peer, lane),
		.pool = pool,
		.lane = lane,
		.slots = pool->own->slots,
		.window_size = pool->own->window,
		.windows_size = windows_size(pool->own),
		.window = -1,
		.dated = pool->dated,
	};
	pool_fresh(pool, lane);
	atomic_store_explicit(&lane_ctl(pool->own, lane)->zcopy_withdrawn, 0, memory_order_relaxed);
	for (uint32_t i = 0; i < t->slots; i++)
		atomic_store_explicit((_Atomic uint64_t *)(t->ring + (size_t)i * LANE_SLOT), 0, memory_order_relaxed);
}

void lane_rx_reset(struct lane_rx *r, const struct lane_memory *own, const struct lane_memory *peer, uint32_t lane)
{
	*r = (struct lane_rx){
		.ring = ring_of(peer, lane),
		.windows = windows_of(peer),
		.own = lane_ctl(own, lane),
		.peer = lane_ctl(peer, lane),
		.slots = peer->slots,
		.window_size = peer->window,
		.windows_size = windows_size(peer),
	};
	atomic_store_explicit(&r->own->zcopy_taken, 0, memory_order_relaxed);
	atomic_store_explicit(&r->own->zcopy_busy, 0, memory_order_relaxed);
	atomic_store_explicit(&r->own->zcopy_least, 0, memory_order_relaxed);
	atomic_store_explicit(&r->own->slots_taken, 0, memory_order_relaxed);
	atomic_store_explicit(&r->own->window_taken, 0, memory_order_relaxed);
}

static void refresh(struct lane_tx *t)
{
	uint64_t slots = load_acquire(&t->peer->slots_taken);
	uint64_t window = load_acquire(&t->peer->window_taken);
	if (slots < t->slots_taken || slots > t->slot || window < t->window_taken || window > t->next) {
		t->broken = true;
		return;
	}
	t->slots_taken = slots;
	t->window_taken = window;
}

static uint32_t slots_free(const struct lane_tx *t, uint32_t reserved)
{
	uint32_t used = (uint32_t)(t->slot - t->slots_taken);
	return used + reserved < t->slots ? t->slots - reserved - used : 0;
}

// All before the base was taken, or another lane would not have got that window; our
// copy of the credit may be older.
static uint64_t ring_start(const struct lane_tx *t) { return t->window_taken > t->base ? t->window_taken : t->base; }

enum { MOST_WINDOWS = 4 }; // as much may be in all of ours that the reader has not taken

// Without a window there is room for what goes by slots.
static uint64_t window_free(const struct lane_tx *t)
{
	if (t->window < 0)
		return t->window_size;
	uint64_t here = t->extent - (t->next - ring_start(t)), out = t->next - t->window_taken, most = (uint64_t)MOST_WINDOWS * t->window_size;
	uint64_t all = out < most ? most - out : 0;
	return here < all ? here : all;
}

static void unpin(struct lane_tx *t) { pool_unpin(t->pool, t->lane, (uint32_t)t->window, t->next); }

// filled: the next piece begins where the first one in this window did.
static bool filled(const struct lane_tx *t) { return t->next > t->base && (t->next - t->base) % t->extent == 0; }

// pin makes a window ours to write into. False: none can be had.
static bool pin(struct lane_tx *t)
{
	bool same = t->window >= 0 && pool_again(t->pool, t->lane, (uint32_t)t->window);
	int other = same && filled(t) ? pool_onward(t->pool, t->lane) : -1;
	if (other >= 0) {
		unpin(t);
		t->window = other;
		same = false;
	} else if (!same) {
		t->window = pool_take(t->pool, t->lane);
	}
	t->poor = t->window < 0;
	if (t->poor)
		return false;
	if (!same)
		t->extent = t->pool->window[t->window].extent;
	if (!same || t->window_taken == t->next)
		t->base = t->next;
	return true;
}

// grow makes the ring longer where more than half of it is full. What is in it must
// not move: it may not be wrapped.
static void grow(struct lane_tx *t)
{
	if (t->extent == t->window_size || window_free(t) >= t->extent / 2)
		return;
	uint64_t base = t->base + (ring_start(t) - t->base) / t->extent * t->extent;
	if (t->next - base > t->extent)
		return;
	t->base = base;
	t->extent = pool_grow(t->pool, (uint32_t)t->window);
}

static void publish(struct lane_tx *t, enum lane_tag tag, uint64_t n)
{
	uint64_t status = lane_parity(t->slot, t->slots) << 63 | n << 38 | (uint64_t)tag << 32 | (t->dated ? lane_date(clock_ticks()) : 0);
	_Atomic uint64_t *s = (_Atomic uint64_t *)(t->ring + lane_slot(t->slot, t->slots));
	t->slot++;
	atomic_store_explicit(s, status, memory_order_release);
}

static uint8_t *payload(struct lane_tx *t) { return t->ring + lane_slot(t->slot, t->slots) + 8; }

bool lane_post(struct lane_tx *t, enum lane_tag tag, uint64_t a, uint64_t b)
{
	if (slots_free(t, 0) == 0)
		refresh(t);
	if (t->broken || slots_free(t, 0) == 0)
		return false;
	uint64_t v[2] = {a, b};
	if (tag == TAG_SWITCH)
		t->switched = t->slot;
	memcpy(payload(t), v, sizeof v);
	publish(t, tag, sizeof v);
	return true;
}

bool lane_advertise(struct lane_tx *t, const void *address, size_t n)
{
	if (slots_free(t, LANE_RESERVED) == 0)
		refresh(t);
	if (t->broken || slots_free(t, LANE_RESERVED) == 0)
		return false;
	uint64_t v[2] = {(uintptr_t)address, n};
	t->advert.inside = lane_inside(t, address, n);
	if (t->advert.inside)
		v[0] -= (uintptr_t)t->windows;
	t->advert.number++;
	t->advert.left = n;
	t->advert.owed = true;
	memcpy(payload(t), v, sizeof v);
	publish(t, t->advert.inside ? TAG_BUFFER : TAG_ZCOPY, sizeof v);
	return true;
}

size_t lane_reserve(struct lane_tx *t, size_t want, uint8_t **to)
{
	if (lane_advert_out(t))
		return 0;
	size_t least = want < 4096 ? want : 4096; // smaller pieces cost more than they move
	if (window_free(t) < LANE_PIECE || slots_free(t, LANE_RESERVED) < 8)
		refresh(t);
	if (t->broken || slots_free(t, LANE_RESERVED) == 0 || !pin(t))
		return 0;
	uint64_t at = (t->next - t->base) % t->extent;
	size_t n = window_free(t);
	if (n < least) {
		unpin(t);
		return 0;
	}
	if (n > LANE_PIECE)
		n = LANE_PIECE;
	if (n > t->extent - at)
		n = t->extent - at;
	*to = t->windows + (uint64_t)t->window * t->window_size + at;
	return n < want ? n : want;
}

void lane_commit(struct lane_tx *t, size_t n)
{
	lane_lend(t, t->windows + (uint64_t)t->window * t->window_size + (t->next - t->base) % t->extent, n);
}

void lane_lend(struct lane_tx *t, const uint8_t *from, size_t n)
{
	if (n > 0) {
		memcpy(payload(t), (uint64_t[]){(uint64_t)(from - t->windows), n}, 16);
		t->next += n;
		atomic_store_explicit(&t->bytes, t->bytes + n, memory_order_relaxed);
		t->rma_bytes += n;
		publish(t, TAG_RMA_INFO, 16);
		grow(t);
	}
	unpin(t);
}

bool lane_rich(struct lane_tx *t)
{
	if (!pin(t))
		return false;
	unpin(t);
	return true;
}

static size_t write_slots(struct lane_tx *t, struct cursor *c)
{
	size_t done = 0;
	while (c->left > 0 && !t->broken && slots_free(t, LANE_RESERVED) > 0) {
		size_t n = c->left < LANE_PAYLOAD ? c->left : LANE_PAYLOAD;
		cursor_get(c, payload(t), n);
		publish(t, c->left ? TAG_VELO : TAG_VELO_LAST, n);
		done += n;
	}
	atomic_store_explicit(&t->bytes, t->bytes + done, memory_order_relaxed);
	return done;
}

size_t lane_write(struct lane_tx *t, struct cursor *c, size_t velo_max)
{
	if (lane_advert_out(t))
		return 0;
	if (c->left > velo_max && !t->poor) {
		uint8_t *to;
		size_t done = lane_reserve(t, c->left, &to);
		if (done) {
			cursor_get(c, to, done);
			lane_commit(t, done);
		}
		return done;
	}
	// A full window is a full socket buffer for small writes too.
	if (slots_free(t, LANE_RESERVED) < 8 || window_free(t) < 4096)
		refresh(t);
	return window_free(t) < 4096 ? 0 : write_slots(t, c);
}

// enough_slots and enough_window are the room that lane_writable asks for. Who sleeps until then
// is woken once for many reads.
static uint32_t enough_slots(const struct lane_tx *t) { return t->slots / 2; }
static uint64_t enough_window(const struct lane_tx *t) { return (t->window < 0 ? t->window_size : t->extent) / 4; }

bool lane_writable(struct lane_tx *t)
{
	uint32_t slots = enough_slots(t);
	uint64_t window = enough_window(t);
	if (lane_advert_out(t)) // until it is over, or not wanted any more
		return t->broken || !lane_wanted(t);
	if (slots_free(t, LANE_RESERVED) < slots || window_free(t) < window)
		refresh(t);
	return t->broken || (slots_free(t, LANE_RESERVED) >= slots && window_free(t) >= window);
}

// due is the credit with which of what was posted no more than `most` is left.
static uint64_t due(uint64_t posted, uint64_t most) { return posted > most ? posted - most : 0; }

HINT void lane_ask(const struct lane_tx *t)
{
	struct lane_ctl *own = lane_ctl(t->pool->own, t->lane);
	uint64_t slots = 0, window = 0;
	if (!t->advert.left) {
		slots = due(t->slot, t->slots - LANE_RESERVED - enough_slots(t));
		if (t->window >= 0) {
			uint64_t here = due(t->next, t->extent - enough_window(t));
			window = due(t->next, (uint64_t)MOST_WINDOWS * t->window_size - enough_window(t));
			if (t->base < here && here > window)
				window = here;
		}
	}
	atomic_store_explicit(&own->slots_due, slots, memory_order_relaxed);
	atomic_store_explicit(&own->window_due, window, memory_order_relaxed);
}

bool lane_joined(struct lane_tx *t)
{
	refresh(t);
	return t->broken || t->slots_taken > t->switched;
}

static uint32_t own_tag(const struct lane_tx *t, uint64_t slot)
{
	return load_acquire(t->ring + lane_slot(slot, t->slots)) >> 32 & 0x3f;
}

// A slot of our own ring: how many stream bytes it carries, and where they are.
static uint64_t own_slot(const struct lane_tx *t, uint64_t slot, uint8_t **at)
{
	uint8_t *s = t->ring + lane_slot(slot, t->slots);
	uint64_t v[2];
	switch (own_tag(t, slot)) {
	case TAG_VELO:
	case TAG_VELO_LAST:
		*at = s + 8;
		return load_acquire(s) >> 38 & 0xfff;
	case TAG_RMA_INFO:
		memcpy(v, s + 8, sizeof v);
		*at = t->windows + v[0];
		return v[1];
	}
	return 0;
}

uint64_t lane_unread(struct lane_tx *t)
{
	uint8_t *at;
	uint64_t n = 0;
	refresh(t);
	for (uint64_t s = t->slots_taken; s < t->slot; s++)
		n += own_slot(t, s, &at);
	return n + (lane_advert_out(t) ? t->advert.left : 0);
}

// keep pins the windows that have what waits for TCP, or leaves them.
static void keep(struct lane_tx *t, bool pinned)
{
	uint8_t *at;
	for (uint64_t s = t->again.first; s < t->slot; s++) {
		if (own_tag(t, s) != TAG_RMA_INFO || !own_slot(t, s, &at))
			continue;
		uint32_t window = (uint32_t)((uint64_t)(at - t->windows) / t->window_size);
		if (pool_again(t->pool, t->lane, window) && !pinned)
			pool_unpin(t->pool, t->lane, window, t->next);
	}
	shelf_keep(t->pool, t->lane, pinned ? SHELF_EVER : t->next);
}

bool lane_withdraw(struct lane_tx *t, uint64_t taken)
{
	uint64_t unread = lane_unread(t);
	uint8_t *at;
	if (t->broken || taken > t->bytes || taken < t->bytes - unread)
		return false;
	uint64_t skip = taken - (t->bytes - unread);
	uint64_t s = t->slots_taken;
	for (uint64_t n; s < t->slot && skip >= (n = own_slot(t, s, &at)); s++)
		skip -= n;
	for (uint64_t later = s; later < t->slot; later++)
		if (own_tag(t, later) == TAG_BACK)
			return false; // TCP bytes are behind some of it already
	t->again.slot = t->again.first = s;
	t->again.off = (uint32_t)skip;
	t->again.left = t->bytes - taken;
	atomic_store_explicit(&t->bytes, taken, memory_order_relaxed);
	// After BACK there is credit for all of it, before TCP has taken it.
	keep(t, true);
	return true;
}

int lane_again(const struct lane_tx *t, struct iovec *iov, int n)
{
	int i = 0;
	uint64_t slot = t->again.slot, left = t->again.left, off = t->again.off;
	for (; i < n && left > 0; slot++, off = 0) {
		uint8_t *at = NULL;
		uint64_t k = own_slot(t, slot, &at);
		if (k == off)
			continue;
		iov[i++] = (struct iovec){at + off, k - off};
		left -= k - off;
	}
	return i;
}

void lane_forget(struct lane_tx *t)
{
	t->again.left = 0;
	keep(t, false);
}

void lane_again_sent(struct lane_tx *t, uint64_t n)
{
	uint8_t *at;
	t->again.left -= n;
	if (!t->again.left)
		lane_forget(t);
	while (n > 0) {
		uint64_t k = own_slot(t, t->again.slot, &at) - t->again.off;
		if (k > n) {
			t->again.off += (uint32_t)n;
			return;
		}
		n -= k;
		t->again.slot++;
		t->again.off = 0;
	}
}
