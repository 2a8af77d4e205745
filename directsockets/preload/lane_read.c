// SPDX-License-Identifier: Apache-2.0
//
// The reading end of a lane; lane_shm.c has the theory, and what is trusted.
#include "lane_shm.h"

#include <string.h>

HINT static uint64_t status_at(const struct lane_rx *r, uint64_t slot)
{
	return load_acquire(r->ring + lane_slot(slot, r->slots));
}

static const uint8_t others[64] = { // what comes by tags other than VELO
	[TAG_RMA_INFO] = LOOK_DATA, [TAG_ZCOPY] = LOOK_DATA, [TAG_BUFFER] = LOOK_DATA, [TAG_SHUTDOWN] = LOOK_CONTROL,
	[TAG_SWITCH] = LOOK_CONTROL, [TAG_BACK] = LOOK_CONTROL, [TAG_ABORT] = LOOK_CONTROL,
};

static inline enum lane_look classify(uint64_t status, uint32_t *tag, uint32_t *n)
{
	*tag = status >> 32 & 0x3f;
	*n = status >> 38 & 0xfff;
	if (status >> 50 & 0x1fff)
		return LOOK_HOSTILE;
	if (*tag == TAG_VELO || *tag == TAG_VELO_LAST)
		return *n >= 1 && *n <= LANE_PAYLOAD ? LOOK_DATA : LOOK_HOSTILE;
	return others[*tag] && *n == 16 ? others[*tag] : LOOK_HOSTILE;
}

enum lane_look lane_look(const struct lane_rx *r)
{
	uint32_t tag, n;
	if (r->piece_left || r->off)
		return LOOK_DATA;
	if (r->advert.left)
		return lane_owed(r) ? LOOK_NONE : LOOK_DATA;
	if (!lane_valid(r, r->slot))
		return LOOK_NONE;
	return classify(status_at(r, r->slot), &tag, &n);
}

static bool is_advert(uint32_t tag) { return tag == TAG_ZCOPY || tag == TAG_BUFFER; }

bool lane_plain(const struct lane_rx *r)
{
	uint32_t tag, n;
	if (r->piece_left || r->off)
		return true;
	uint64_t slot = r->slot, status = status_at(r, slot);
	return !r->advert.left && status >> 63 == lane_parity(slot, r->slots) && classify(status, &tag, &n) == LOOK_DATA && !is_advert(tag);
}

HINT bool lane_pure(const struct lane_rx *r)
{
	enum { MANY = 4 };
	uint64_t first = atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&r->slot, memory_order_relaxed), slot = first;
	while (lane_valid(r, slot)) {
		uint32_t tag, n;
		if (classify(status_at(r, slot), &tag, &n) != LOOK_DATA || ++slot == first + MANY)
			return false;
	}
	atomic_thread_fence(memory_order_acquire); // a slot that was read meanwhile may have been posted anew
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)&r->slot, memory_order_relaxed) == first;
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

HINT bool lane_last(const struct lane_rx *r, uint64_t slot, uint32_t tag)
{
	return slot > r->slot && (status_at(r, slot - 1) >> 32 & 0x3f) == tag;
}

// open_piece loads an RMA_INFO into the reader and checks it.
static bool open_piece(struct lane_rx *r, const uint8_t *from)
{
	uint64_t v[2];
	memcpy(v, from, sizeof v);
	if (v[1] == 0 || v[1] > LANE_PIECE || v[1] > r->windows_size || v[0] > r->windows_size - v[1])
		return false;
	r->piece = v[0];
	r->piece_left = v[1];
	r->window_end += v[1];
	return true;
}

// open_advert loads an advert into the reader. The address of a ZCOPY is for the kernel to
// check.
static bool open_advert(struct lane_rx *r, uint32_t tag, const uint8_t *from)
{
	uint64_t v[2];
	memcpy(v, from, sizeof v);
	bool inside = tag == TAG_BUFFER;
	if (v[1] == 0 || v[1] >> 62 || v[0] + v[1] < v[0] || (inside && v[0] + v[1] > r->windows_size))
		return false;
	r->advert.inside = inside;
	r->advert.number++;
	r->advert.address = v[0];
	r->advert.left = v[1];
	r->advert.stuck = r->advert.over = false;
	return true;
}

bool lane_meet(struct lane_rx *r)
{
	uint32_t tag, n;
	for (bool dropped = false;; dropped = true) {
		if (r->piece_left || r->off)
			return dropped;
		if (!r->advert.left) {
			if (!lane_valid(r, r->slot) || classify(status_at(r, r->slot), &tag, &n) != LOOK_DATA || !is_advert(tag) ||
			    !open_advert(r, tag, r->ring + lane_slot(r->slot, r->slots) + 8))
				return dropped;
			r->slot++;
		}
		r->advert.over = lane_void(r);
		if (!r->advert.over || !lane_valid(r, r->slot))
			return dropped;
		r->advert.left = 0;
		r->advert.over = r->advert.stuck = false;
	}
}

size_t lane_read(struct lane_rx *r, struct cursor *c, bool *hostile)
{
	size_t done = 0;
	uint32_t tag, n;
	while (c->left > 0 && !r->advert.left) {
		if (r->piece_left) {
			size_t k = r->piece_left < c->left ? r->piece_left : c->left;
			cursor_put(c, r->windows + r->piece, k);
			r->piece += k;
			r->piece_left -= k;
			r->rma_bytes += k;
			done += k;
			continue;
		}
		enum lane_look what = lane_valid(r, r->slot) ? classify(status_at(r, r->slot), &tag, &n) : LOOK_NONE;
		const uint8_t *from = r->ring + lane_slot(r->slot, r->slots) + 8;
		if (r->off == 0 && (what == LOOK_NONE || what == LOOK_CONTROL))
			break;
		// A slot of which a part was read cannot go away or become another.
		bool announced = what == LOOK_DATA && (tag == TAG_RMA_INFO || is_advert(tag));
		if (what != LOOK_DATA || r->off >= n ||
		    (announced && (r->off || !(is_advert(tag) ? open_advert(r, tag, from) : open_piece(r, from))))) {
			*hostile = true;
			break;
		}
		if (announced) {
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
	// What is announced holds its slot until it is consumed, so that equal
	// slot counts mean that the lane is empty.
	bool held = r->piece_left || r->advert.left;
	atomic_store_explicit(&r->own->slots_taken, held ? r->slot - 1 : r->slot, memory_order_release);
}

enum lane_tag lane_take(struct lane_rx *r, uint64_t *a, uint64_t *b)
{
	uint64_t v[2];
	uint32_t tag, n;
	if (classify(status_at(r, r->slot), &tag, &n) != LOOK_CONTROL)
		tag = TAG_ABORT; // it changed between two looks
	memcpy(v, r->ring + lane_slot(r->slot, r->slots) + 8, sizeof v);
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
	walk.piece_left = walk.advert.left = 0;
	for (uint32_t i = 0; i < r->slots && lane_valid(&walk, walk.slot); i++, walk.slot++) {
		const uint8_t *from = walk.ring + lane_slot(walk.slot, walk.slots) + 8;
		enum lane_look what = classify(status_at(&walk, walk.slot), &tag, &n);
		if (what == LOOK_HOSTILE || (tag == TAG_RMA_INFO && !open_piece(&walk, from)) ||
		    (is_advert(tag) && !open_advert(&walk, tag, from)))
			return LOOK_HOSTILE;
		walk.piece_left = walk.advert.left = 0;
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
	total += lane_advertised(&walk, total);
	for (uint32_t i = 0; i < r->slots && total < limit && lane_valid(&walk, walk.slot); i++, walk.slot++) {
		enum lane_look what = classify(status_at(&walk, walk.slot), &tag, &n);
		if (what == LOOK_CONTROL && through)
			continue;
		if (what != LOOK_DATA)
			break;
		const uint8_t *from = walk.ring + lane_slot(walk.slot, walk.slots) + 8;
		if (is_advert(tag) ? !open_advert(&walk, tag, from) : tag == TAG_RMA_INFO && !open_piece(&walk, from))
			break;
		if (is_advert(tag))
			total += lane_advertised(&walk, total);
		else if (tag == TAG_RMA_INFO)
			total += walk.piece_left;
		else
			total += n - (walk.off < n ? walk.off : n);
		walk.off = 0;
	}
	return total < limit ? total : limit;
}
