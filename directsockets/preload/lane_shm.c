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
// The window is a ring of bytes addressed by positions that only grow. A piece
// never crosses the end of the ring. A window found empty starts again at its
// beginning: `next` moves up to a multiple of the size and `floor` remembers
// that all before it is free.
//
// Trust: from the peer's file come status words, payloads and credit. Each is
// loaded once into a private copy, then checked: tag and length legal, reserved
// bits zero, a piece inside the window and not before the last one, credit
// neither above what was posted nor below what was seen. Copying stream bytes
// that the writer changes meanwhile gives the program other bytes of that
// peer's choice, which the peer could have sent anyway.
#include "lane_shm.h"

#include <string.h>

#define load_acquire(p) atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)(p), memory_order_acquire)

uint64_t lane_memory_size(uint32_t lanes, uint32_t slots, uint32_t window)
{
	uint64_t n = LANE_HEAD + (uint64_t)lanes * LANE_CTL + (uint64_t)lanes * slots * LANE_SLOT;
	n = (n + 4095) & ~4095ull;
	return n + (uint64_t)lanes * window;
}

static uint8_t *ring_of(const struct lane_memory *m, uint32_t lane)
{
	return m->base + LANE_HEAD + (uint64_t)m->lanes * LANE_CTL + (uint64_t)lane * m->slots * LANE_SLOT;
}

static uint8_t *window_of(const struct lane_memory *m, uint32_t lane)
{
	return m->base + m->size - (uint64_t)(m->lanes - lane) * m->window;
}

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
			memcpy(to, at, k);
			to += k;
		} else if (from) {
			memcpy(at, from, k);
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

void lane_tx_reset(struct lane_tx *t, const struct lane_memory *own, const struct lane_memory *peer, uint32_t lane)
{
	*t = (struct lane_tx){
		.ring = ring_of(own, lane),
		.window = window_of(own, lane),
		.peer = lane_ctl(peer, lane),
		.slots = own->slots,
		.window_size = own->window,
	};
	for (uint32_t i = 0; i < t->slots; i++)
		atomic_store_explicit((_Atomic uint64_t *)(t->ring + (size_t)i * LANE_SLOT), 0, memory_order_relaxed);
}

void lane_rx_reset(struct lane_rx *r, const struct lane_memory *own, const struct lane_memory *peer, uint32_t lane)
{
	*r = (struct lane_rx){
		.ring = ring_of(peer, lane),
		.window = window_of(peer, lane),
		.own = lane_ctl(own, lane),
		.slots = peer->slots,
		.window_size = peer->window,
	};
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
	if (window > t->floor)
		t->floor = window;
}

static uint32_t slots_free(const struct lane_tx *t, uint32_t reserved)
{
	uint32_t used = (uint32_t)(t->slot - t->slots_taken);
	return used + reserved < t->slots ? t->slots - reserved - used : 0;
}

static uint64_t window_free(const struct lane_tx *t) { return t->window_size - (t->next - t->floor); }

static void publish(struct lane_tx *t, enum lane_tag tag, uint64_t n)
{
	uint64_t valid = (t->slot / t->slots & 1) ^ 1;
	uint64_t status = valid << 63 | n << 38 | (uint64_t)tag << 32;
	_Atomic uint64_t *s = (_Atomic uint64_t *)(t->ring + (t->slot & (t->slots - 1)) * LANE_SLOT);
	t->slot++;
	atomic_store_explicit(s, status, memory_order_release);
}

static uint8_t *payload(struct lane_tx *t) { return t->ring + (t->slot & (t->slots - 1)) * LANE_SLOT + 8; }

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

size_t lane_reserve(struct lane_tx *t, size_t want, uint8_t **to)
{
	size_t least = want < 4096 ? want : 4096; // smaller pieces cost more than they move
	if (window_free(t) < LANE_PIECE || slots_free(t, LANE_RESERVED) < 8)
		refresh(t);
	if (t->broken || slots_free(t, LANE_RESERVED) == 0)
		return 0;
	if (t->floor == t->next) // empty: start again at the beginning, where the cache is warm
		t->next = t->floor = (t->next + t->window_size - 1) & ~(uint64_t)(t->window_size - 1);
	uint64_t at = t->next & (t->window_size - 1);
	size_t n = window_free(t);
	if (n < least)
		return 0;
	if (n > LANE_PIECE)
		n = LANE_PIECE;
	if (n > t->window_size - at)
		n = t->window_size - at;
	*to = t->window + at;
	return n < want ? n : want;
}

void lane_commit(struct lane_tx *t, size_t n)
{
	uint64_t v[2] = {t->next, n};
	memcpy(payload(t), v, sizeof v);
	t->next += n;
	t->bytes += n;
	t->rma_bytes += n;
	publish(t, TAG_RMA_INFO, sizeof v);
}

size_t lane_write(struct lane_tx *t, struct cursor *c, size_t velo_max)
{
	size_t done = 0;
	if (c->left > velo_max) {
		uint8_t *to;
		done = lane_reserve(t, c->left, &to);
		if (done) {
			cursor_get(c, to, done);
			lane_commit(t, done);
		}
		return done;
	}
	// A full window is a full socket buffer for small writes too.
	if (slots_free(t, LANE_RESERVED) < 8 || window_free(t) < 4096)
		refresh(t);
	if (window_free(t) < 4096)
		return 0;
	while (c->left > 0 && !t->broken && slots_free(t, LANE_RESERVED) > 0) {
		size_t n = c->left < LANE_PAYLOAD ? c->left : LANE_PAYLOAD;
		cursor_get(c, payload(t), n);
		publish(t, c->left ? TAG_VELO : TAG_VELO_LAST, n);
		done += n;
	}
	t->bytes += done;
	return done;
}

bool lane_writable(struct lane_tx *t)
{
	uint32_t slots = t->slots / 8;
	uint64_t window = t->window_size / 4;
	if (slots_free(t, LANE_RESERVED) < slots || window_free(t) < window)
		refresh(t);
	return t->broken || (slots_free(t, LANE_RESERVED) >= slots && window_free(t) >= window);
}

bool lane_joined(struct lane_tx *t)
{
	refresh(t);
	return t->broken || t->slots_taken > t->switched;
}

static uint32_t own_tag(const struct lane_tx *t, uint64_t slot)
{
	return load_acquire(t->ring + (slot & (t->slots - 1)) * LANE_SLOT) >> 32 & 0x3f;
}

// A slot of our own ring: how many stream bytes it carries, and where they are.
static uint64_t own_slot(const struct lane_tx *t, uint64_t slot, uint8_t **at)
{
	uint8_t *s = t->ring + (slot & (t->slots - 1)) * LANE_SLOT;
	uint64_t v[2];
	switch (own_tag(t, slot)) {
	case TAG_VELO:
	case TAG_VELO_LAST:
		*at = s + 8;
		return load_acquire(s) >> 38 & 0xfff;
	case TAG_RMA_INFO:
		memcpy(v, s + 8, sizeof v);
		*at = t->window + (v[0] & (t->window_size - 1));
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
	return n;
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
	t->again.slot = s;
	t->again.off = (uint32_t)skip;
	t->again.left = t->bytes - taken;
	t->bytes = taken;
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

void lane_again_sent(struct lane_tx *t, uint64_t n)
{
	uint8_t *at;
	t->again.left -= n;
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

static uint64_t status_at(const struct lane_rx *r, uint64_t slot)
{
	return load_acquire(r->ring + (slot & (r->slots - 1)) * LANE_SLOT);
}

static enum lane_look classify(uint64_t status, uint32_t *tag, uint32_t *n)
{
	*tag = status >> 32 & 0x3f;
	*n = status >> 38 & 0xfff;
	if (status >> 50 & 0x1fff || status & 0xffffffffu)
		return LOOK_HOSTILE;
	switch (*tag) {
	case TAG_VELO:
	case TAG_VELO_LAST:
		return *n >= 1 && *n <= LANE_PAYLOAD ? LOOK_DATA : LOOK_HOSTILE;
	case TAG_RMA_INFO:
		return *n == 16 ? LOOK_DATA : LOOK_HOSTILE;
	case TAG_SHUTDOWN:
	case TAG_SWITCH:
	case TAG_BACK:
	case TAG_ABORT:
		return *n == 16 ? LOOK_CONTROL : LOOK_HOSTILE;
	}
	return LOOK_HOSTILE;
}

enum lane_look lane_look(const struct lane_rx *r)
{
	uint32_t tag, n;
	if (r->piece_left || r->off)
		return LOOK_DATA;
	if (!lane_valid(r, r->slot))
		return LOOK_NONE;
	return classify(status_at(r, r->slot), &tag, &n);
}

bool lane_news(const struct lane_rx *r, uint64_t *slot, uint64_t *turns)
{
	bool news = false;
	if (r->slot > *slot) {
		news = r->slot - *slot > r->turns - *turns;
		*slot = r->slot;
		*turns = r->turns;
	}
	for (uint32_t i = 0; i < r->slots && lane_valid(r, *slot); i++, ++*slot) {
		uint32_t tag = status_at(r, *slot) >> 32 & 0x3f;
		bool turn = tag == TAG_SWITCH || tag == TAG_BACK;
		*turns += turn;
		news |= !turn;
	}
	return news;
}

// open_piece loads an RMA_INFO into the reader and checks it.
static bool open_piece(struct lane_rx *r, const uint8_t *from)
{
	uint64_t v[2];
	memcpy(v, from, sizeof v);
	uint64_t at = v[0] & (r->window_size - 1);
	if (v[1] == 0 || v[1] > LANE_PIECE || v[1] > r->window_size - at || v[0] < r->window_end || v[0] >> 62)
		return false;
	r->piece = v[0];
	r->piece_left = v[1];
	r->window_end = v[0] + v[1];
	return true;
}

size_t lane_read(struct lane_rx *r, struct cursor *c, bool *hostile)
{
	size_t done = 0;
	uint32_t tag, n;
	while (c->left > 0) {
		if (r->piece_left) {
			size_t k = r->piece_left < c->left ? r->piece_left : c->left;
			cursor_put(c, r->window + (r->piece & (r->window_size - 1)), k);
			r->piece += k;
			r->piece_left -= k;
			r->rma_bytes += k;
			done += k;
			continue;
		}
		enum lane_look what = lane_valid(r, r->slot) ? classify(status_at(r, r->slot), &tag, &n) : LOOK_NONE;
		const uint8_t *from = r->ring + (r->slot & (r->slots - 1)) * LANE_SLOT + 8;
		if (r->off == 0 && (what == LOOK_NONE || what == LOOK_CONTROL))
			break;
		// A slot of which a part was read cannot go away or become another.
		if (what != LOOK_DATA || r->off >= n || (tag == TAG_RMA_INFO && !open_piece(r, from))) {
			*hostile = true;
			break;
		}
		if (tag == TAG_RMA_INFO) {
			r->slot++;
			continue;
		}
		size_t k = n - r->off < c->left ? n - r->off : c->left;
		cursor_put(c, from + r->off, k);
		r->off += (uint32_t)k;
		done += k;
		if (r->off == n) {
			r->off = 0;
			r->slot++;
		}
	}
	r->bytes += done;
	return done;
}

void lane_give(struct lane_rx *r)
{
	atomic_store_explicit(&r->own->window_taken, r->window_end - r->piece_left, memory_order_release);
	// An announced piece holds its slot until it is consumed, so that equal
	// slot counts mean that the lane is empty.
	atomic_store_explicit(&r->own->slots_taken, r->piece_left ? r->slot - 1 : r->slot, memory_order_release);
}

enum lane_tag lane_take(struct lane_rx *r, uint64_t *a, uint64_t *b)
{
	uint64_t v[2];
	uint32_t tag, n;
	if (classify(status_at(r, r->slot), &tag, &n) != LOOK_CONTROL)
		tag = TAG_ABORT; // it changed between two looks
	memcpy(v, r->ring + (r->slot & (r->slots - 1)) * LANE_SLOT + 8, sizeof v);
	*a = v[0];
	*b = v[1];
	r->slot++;
	r->turns += tag == TAG_SWITCH || tag == TAG_BACK;
	return tag;
}

enum lane_look lane_skip(struct lane_rx *r)
{
	struct lane_rx walk = *r;
	uint32_t tag, n;
	walk.off = 0;
	walk.piece_left = 0;
	for (uint32_t i = 0; i < r->slots && lane_valid(&walk, walk.slot); i++, walk.slot++) {
		const uint8_t *from = walk.ring + (walk.slot & (walk.slots - 1)) * LANE_SLOT + 8;
		enum lane_look what = classify(status_at(&walk, walk.slot), &tag, &n);
		if (what == LOOK_HOSTILE || (tag == TAG_RMA_INFO && !open_piece(&walk, from)))
			return LOOK_HOSTILE;
		walk.piece_left = 0;
		if (what == LOOK_DATA)
			continue;
		uint64_t m;
		memcpy(&m, from, sizeof m);
		if (tag != TAG_BACK || m != r->bytes)
			return LOOK_DATA;
		walk.slot++;
		*r = walk;
		return LOOK_CONTROL;
	}
	return LOOK_NONE;
}

size_t lane_available(const struct lane_rx *r, size_t limit, bool through)
{
	struct lane_rx walk = *r;
	size_t total = walk.piece_left;
	uint32_t tag, n;
	for (uint32_t i = 0; i < r->slots && total < limit && lane_valid(&walk, walk.slot); i++, walk.slot++) {
		enum lane_look what = classify(status_at(&walk, walk.slot), &tag, &n);
		if (what == LOOK_CONTROL && through)
			continue;
		if (what != LOOK_DATA)
			break;
		if (tag != TAG_RMA_INFO) {
			total += n - (walk.off < n ? walk.off : n);
		} else {
			if (!open_piece(&walk, walk.ring + (walk.slot & (walk.slots - 1)) * LANE_SLOT + 8))
				break;
			total += walk.piece_left;
		}
		walk.off = 0;
	}
	return total < limit ? total : limit;
}
