// SPDX-License-Identifier: Apache-2.0
//
// A writer of much goes round in windows. What it has left behind stays there until
// the reader has it, and what is withdrawn until TCP has it, though the reader gives
// credit for it before. Package lane has the same test.
#include "real.h"

#include "record.h"

#include <stdlib.h>
#include <string.h>

#include "lane_shm.h"

enum { LANES = 3, OTHER = 2, SLOTS = 64, WINDOW = 16 << 10, WINDOWS = 128, ROUND = 16, MOST = 4 };

static struct lane_memory ours, theirs;
static struct lane_pool pool;
static struct lane_tx tx[LANES];
static struct lane_rx rx[LANES];
static uint8_t turn; // what the last write consists of

static struct lane_memory memory(void)
{
	struct lane_memory m = {.lanes = LANES, .slots = SLOTS, .windows = WINDOWS, .window = WINDOW};
	m.size = lane_memory_size(LANES, SLOTS, WINDOWS, WINDOW);
	if (!(m.base = calloc(1, m.size)))
		fail("no memory");
	return m;
}

static size_t put_one(int n)
{
	static uint8_t text[WINDOW];
	memset(text, ++turn, sizeof text);
	struct iovec iov = {text, sizeof text};
	struct cursor cur = cursor_make(&iov, 1);
	return lane_write(&tx[n], &cur, 480);
}

static bool all_are(const uint8_t *bytes, size_t n, uint8_t what)
{
	for (size_t i = 0; i < n; i++)
		if (bytes[i] != what)
			return false;
	return true;
}

static void stream(int n)
{
	static uint8_t got[WINDOW];
	struct iovec iov = {got, sizeof got};
	struct cursor cur = cursor_make(&iov, 1);
	bool hostile = false;
	size_t wrote = put_one(n), read = lane_read(&rx[n], &cur, &hostile);
	if (hostile || read != wrote || !all_are(got, read, turn))
		fail("lane %d: %zu bytes of %zu, or not its own", n, read, wrote);
	lane_give(&rx[n]);
}

// unread counts the windows that another lane could not take.
static uint32_t unread(void)
{
	uint32_t free = 0;
	for (uint32_t i = 0; i < pool.used; i++)
		free += pool_take(&pool, OTHER) >= 0;
	for (uint32_t i = 0; i < pool.used; i++)
		if (pool_again(&pool, OTHER, i))
			pool_unpin(&pool, OTHER, i, 0);
	return pool.used - free;
}

static void goes_round(void)
{
	bool went[WINDOWS] = {false};
	uint32_t n = 0;
	for (int i = 0; i < 4 * ROUND; i++) {
		stream(0);
		n += !went[tx[0].window];
		went[tx[0].window] = true;
	}
	if (n != ROUND || pool.used != ROUND)
		fail("it went by %u windows of %u, want %d", n, pool.used, ROUND);
}

static void withdrawn(void)
{
	uint8_t first = turn + 1;
	size_t total = 0;
	for (size_t n; (n = put_one(0)) > 0;)
		total += n;
	if (total != MOST * WINDOW)
		fail("%zu bytes wait for the reader, want %d windows full", total, MOST);
	if (!lane_withdraw(&tx[0], tx[0].bytes - total) || !lane_post(&tx[0], TAG_BACK, tx[0].bytes, 0) || lane_skip(&rx[0]) != LOOK_CONTROL)
		fail("no BACK");
	lane_give(&rx[0]);
	for (int i = 0; i < 4 * ROUND; i++)
		stream(1);
	for (uint8_t i = 0; i < MOST; i++) {
		struct iovec iov;
		if (lane_again(&tx[0], &iov, 1) != 1 || iov.iov_len != WINDOW || !all_are(iov.iov_base, WINDOW, first + i))
			fail("what waits for TCP was overwritten in window %d", i);
		lane_again_sent(&tx[0], WINDOW);
	}
	if (unread() != 0)
		fail("%u windows are lost", unread());
}

static void closed(void)
{
	for (int i = 0; i < MOST; i++)
		put_one(1);
	pool_left(&pool, 1);
	if (unread() != MOST)
		fail("%u windows are not read yet, want %d", unread(), MOST);
	pool_fresh(&pool, 1);
	if (unread() != 0)
		fail("a lane that begins anew has %u windows", unread());
}

int round_of(void)
{
	ours = memory();
	theirs = memory();
	pool_init(&pool, &ours, &theirs, WINDOW);
	for (uint32_t n = 0; n < LANES; n++) {
		lane_ctl(&theirs, n)->generation = 1;
		lane_tx_reset(&tx[n], &pool, n);
		lane_rx_reset(&rx[n], &theirs, &ours, n);
	}
	goes_round();
	withdrawn();
	closed();
	return 0;
}
