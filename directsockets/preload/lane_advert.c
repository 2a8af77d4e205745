// SPDX-License-Identifier: Apache-2.0
//
// Adverts, bytes in the writer's own memory that are announced on a lane: what both
// ends know of the last one. zcopy.c has the theory, lane_shm.c the slots.
#include "lane_shm.h"

// take_advert accepts the reader's credit for the advert that is out.
static void take_advert(struct lane_tx *t)
{
	uint64_t taken = load_acquire(&t->peer->zcopy_taken) - t->advert.taken;
	if (taken > t->advert.left) {
		t->broken = true;
		return;
	}
	t->advert.taken += taken;
	t->advert.left -= taken;
	atomic_store_explicit(&t->bytes, t->bytes + taken, memory_order_relaxed);
}

bool lane_advert_out(struct lane_tx *t)
{
	if (t->advert.left)
		take_advert(t);
	return t->advert.left > 0;
}

void lane_advert_end(struct lane_tx *t)
{
	if (t->advert.left)
		take_advert(t);
	t->advert.left = 0;
}

bool lane_wanted(const struct lane_tx *t)
{
	return (t->advert.inside || load_acquire(&t->peer->zcopy_least)) &&
	       load_acquire(&lane_ctl(t->pool->own, t->lane)->zcopy_withdrawn) < t->advert.number;
}

bool lane_void(const struct lane_rx *r) { return load_acquire(&r->peer->zcopy_withdrawn) >= r->advert.number; }

size_t lane_advertised(const struct lane_rx *r, size_t before)
{
	if (!r->advert.left || (lane_void(r) && lane_valid(r, r->slot)))
		return 0;
	size_t most = before < r->window_size ? r->window_size - before : 0;
	return r->advert.left < most ? r->advert.left : most;
}
