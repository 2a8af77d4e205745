// SPDX-License-Identifier: Apache-2.0
//
// A slot of which the reader has taken a part is changed by its writer: to nothing, to
// a control message, to fewer bytes, to a tag that there is not. Each must be
// noticed, where an honest slot is read to its end.
//
// Exit status: 0 all is as it should be, 1 not (said on stderr).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>

#include "lane_shm.h"

enum { LANES = 2, SLOTS = 16, WINDOW = 16384, BYTES = 100, PART = 10 };

static struct lane_memory memory(void)
{
	struct lane_memory m = {.lanes = LANES, .slots = SLOTS, .windows = 1, .window = WINDOW};
	m.size = lane_memory_size(LANES, SLOTS, 1, WINDOW);
	m.base = aligned_alloc(4096, (m.size + 4095) / 4096 * 4096);
	memset(m.base, 0, m.size);
	return m;
}

static struct cursor cursor_of(struct iovec *v, void *p, size_t n)
{
	*v = (struct iovec){p, n};
	return cursor_make(v, 1);
}

int main(void)
{
	static const struct {
		const char *what;
		uint64_t keep, set; // of the status word
		bool hostile;
	} cases[] = {
		{"nothing", ~0ull, 0, false},
		{"taken back", ~(1ull << 63), 0, true},
		{"a control message", ~(0xfffull << 38 | 0x3full << 32), 16ull << 38 | (uint64_t)TAG_BACK << 32, true},
		{"shorter than what was taken", ~(0xfffull << 38), (PART - 1ull) << 38, true},
		{"no tag", ~(0x3full << 32), 0, true},
	};
	int bad = 0;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct lane_memory writer = memory(), reader = memory();
		static struct lane_pool pool;
		struct lane_tx tx;
		struct lane_rx rx;
		struct iovec v;
		uint8_t out[BYTES] = {1}, in[BYTES];
		bool hostile = false;
		pool_init(&pool, &writer, &reader, WINDOW);
		lane_tx_reset(&tx, &pool, 0);
		lane_rx_reset(&rx, &reader, &writer, 0);
		struct cursor c = cursor_of(&v, out, BYTES);
		lane_write(&tx, &c, BYTES);
		c = cursor_of(&v, in, PART);
		if (lane_read(&rx, &c, &hostile) != PART || hostile) {
			fprintf(stderr, "%s: the first part could not be read\n", cases[i].what);
			return 1;
		}
		uint64_t *status = (uint64_t *)(void *)(writer.base + LANE_HEAD + LANE_CTL * LANES);
		*status = (*status & cases[i].keep) | cases[i].set;
		c = cursor_of(&v, in, BYTES);
		size_t n = lane_read(&rx, &c, &hostile);
		if (hostile != cases[i].hostile || n != (hostile ? 0 : BYTES - PART)) {
			fprintf(stderr, "changed to %s: %zu bytes, %sseen as hostile\n", cases[i].what, n, hostile ? "" : "not ");
			bad = 1;
		}
		free(writer.base);
		free(reader.base);
	}
	return bad;
}
