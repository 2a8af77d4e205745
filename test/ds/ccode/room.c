// SPDX-License-Identifier: Apache-2.0
//
// A writer fills a lane and says what room it waits for; a reader takes little at a time, a random
// part each. That is due when there is that room, not before; and when all is taken, whatever
// the writer has posted since.
//
// Exit status: 0 all is as it should be, 1 not (said on stderr).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "lane_shm.h"

enum { LANES = 2, ROUNDS = 1000, MOST = 1 << 20 };

static char bytes[MOST];

static struct lane_memory memory(uint32_t slots, uint32_t windows, uint32_t window)
{
	struct lane_memory m = {.lanes = LANES, .slots = slots, .windows = windows, .window = window};
	m.size = lane_memory_size(LANES, slots, windows, window);
	m.base = aligned_alloc(4096, m.size);
	memset(m.base, 0, m.size);
	return m;
}

static void fill(struct lane_tx *tx, bool large)
{
	static const size_t sizes[] = {1, 100, 700, 5000, 200000};
	for (size_t n = 1; n > 0;) {
		struct iovec v = {bytes, sizes[large ? 4 : rand() % 5]};
		struct cursor c = cursor_make(&v, 1);
		n = lane_write(tx, &c, 480);
	}
}

static void take(struct lane_rx *rx, size_t n)
{
	struct iovec v = {bytes, n};
	struct cursor c = cursor_make(&v, 1);
	bool hostile = false;
	lane_read(rx, &c, &hostile);
	if (hostile)
		exit(1);
	lane_give(rx);
}

static bool empty(const struct lane_rx *rx) { return lane_look(rx) == LOOK_NONE; }

static void check(bool right, int round, const char *what)
{
	if (right)
		return;
	fprintf(stderr, "round %d: %s\n", round, what);
	exit(1);
}

static void play(struct lane_memory writer, struct lane_memory reader)
{
	struct lane_pool pool = {0};
	struct lane_tx tx;
	struct lane_rx rx;
	const struct lane_ctl *asks = lane_ctl(&writer, 0), *gives = lane_ctl(&reader, 0);
	int waits = 0;
	pool_init(&pool, &writer, &reader, writer.window);
	lane_tx_reset(&tx, &pool, 0);
	lane_rx_reset(&rx, &reader, &writer, 0);
	for (int i = 0; i < ROUNDS; i++) {
		fill(&tx, i % 4 == 0);
		if (lane_writable(&tx))
			continue; // the last bytes went by slots, and the rest needs a window
		lane_ask(&tx);
		waits++;
		for (size_t n = 1 + (size_t)rand() % (i % 2 ? 1000 : 100000); !lane_due(gives, asks); take(&rx, n))
			check(!lane_writable(&tx) && !empty(&rx), i, "writable, or all is taken, and not due");
		check(lane_writable(&tx), i, "due, and not writable");
		if (i % 3 == 1) // others write, too, while somebody sleeps
			fill(&tx, true);
		for (; i % 3 && !empty(&rx); take(&rx, MOST))
			;
		check(i % 3 == 0 || lane_due(gives, asks), i, "all is taken, and not due");
	}
	check(waits > ROUNDS / 4, waits, "of all in which there was no room");
	lane_advertise(&tx, bytes, 1);
	lane_ask(&tx);
	check(lane_due(gives, asks), ROUNDS, "an advert is out, and what is taken of it is not due");
}

int main(void)
{
	play(memory(16, 2, 16 << 10), memory(16, 2, 16 << 10));
	play(memory(64, 128, 256 << 10), memory(64, 128, 256 << 10));
	return 0;
}
