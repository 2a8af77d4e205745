// SPDX-License-Identifier: Apache-2.0
//
// Layouts, and single slots as a reader takes them.
#include "real.h"

#include <stdlib.h>
#include <string.h>

#include "channel.h"
#include "lane_shm.h"

#include "record.h"

int layout(void)
{
#define FIELD(of, type, field) printf("%s %s %zu %zu\n", of, #field, offsetof(struct type, field), sizeof((struct type *)0)->field)
	FIELD("head", lane_head, magic);
	FIELD("head", lane_head, version);
	FIELD("head", lane_head, lanes);
	FIELD("head", lane_head, slots);
	FIELD("head", lane_head, window);
	FIELD("head", lane_head, size);
	FIELD("head", lane_head, posted);
	FIELD("head", lane_head, cpu);
	FIELD("head", lane_head, waiter);
	FIELD("control", lane_ctl, generation);
	FIELD("control", lane_ctl, closed);
	FIELD("control", lane_ctl, shut);
	FIELD("control", lane_ctl, consent);
	FIELD("control", lane_ctl, go_back);
	FIELD("control", lane_ctl, slots_taken);
	FIELD("control", lane_ctl, window_taken);
	FIELD("control", lane_ctl, rx_waiters);
	FIELD("control", lane_ctl, tx_waiters);
	FIELD("message", message, kind);
	FIELD("message", message, version);
	FIELD("message", message, lane);
	FIELD("message", message, generation);
	FIELD("message", message, reason);
	FIELD("message", message, lanes);
	FIELD("message", message, slots);
	FIELD("message", message, window);
	FIELD("message", message, size);
	FIELD("message", message, ino);
	FIELD("message", message, peer_ino);
	FIELD("message", message, tuple.local);
	FIELD("message", message, tuple.remote);
	FIELD("message", message, tuple.local_port);
	FIELD("message", message, tuple.remote_port);
	FIELD("message", message, tuple.v6);
	FIELD("message", message, name);
#define VALUE(of, name, value) printf("%s %s %llu\n", of, name, (unsigned long long)(value))
	VALUE("size", "head", LANE_HEAD);
	VALUE("size", "control", sizeof(struct lane_ctl));
	VALUE("size", "slot", LANE_SLOT);
	VALUE("size", "payload", LANE_PAYLOAD);
	VALUE("size", "message", sizeof(struct message));
	VALUE("limit", "version", LANE_VERSION);
	VALUE("limit", "waiters", LANE_WAITERS);
	VALUE("limit", "reserved", LANE_RESERVED);
	VALUE("limit", "piece", LANE_PIECE);
	VALUE("tag", "VELO", TAG_VELO);
	VALUE("tag", "VELO_LAST", TAG_VELO_LAST);
	VALUE("tag", "RMA_INFO", TAG_RMA_INFO);
	VALUE("tag", "SHUTDOWN", TAG_SHUTDOWN);
	VALUE("tag", "SWITCH", TAG_SWITCH);
	VALUE("tag", "BACK", TAG_BACK);
	VALUE("tag", "ABORT", TAG_ABORT);
	VALUE("kind", "HELLO", MESSAGE_HELLO);
	VALUE("kind", "ATTACH", MESSAGE_ATTACH);
	VALUE("kind", "ATTACH_OK", MESSAGE_ATTACH_OK);
	VALUE("kind", "ATTACH_NO", MESSAGE_ATTACH_NO);
	for (int i = 0; i < REASON_COUNT; i++)
		VALUE("reason", reason_names[i], i);
	for (int i = 0; i <= CONN_CLOSED; i++)
		VALUE("state", state_names[i], i);
	static const uint32_t files[][3] = {{2, 16, 16 << 10}, {1024, 64, 256 << 10}, {3, 32, 64 << 10}, {4096, 1024, 16 << 20}};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
		printf("file %u %u %u %lu\n", files[i][0], files[i][1], files[i][2], lane_memory_size(files[i][0], files[i][1], files[i][2]));
	return 0;
}

enum { SLOTS = 16, WINDOW = 16 << 10, LANES = 2 };

static struct lane_memory memory(void)
{
	struct lane_memory m = {.lanes = LANES, .slots = SLOTS, .window = WINDOW, .size = lane_memory_size(LANES, SLOTS, WINDOW)};
	m.base = calloc(1, m.size);
	return m;
}

// judge says what a reader takes the slot for that it comes to as number k, after
// pieces up to window_end.
static void judge(const char *name, const uint8_t *slot, uint64_t k, uint64_t window_end)
{
	static const char *const looks[] = {"nothing", "data", "control", "hostile"};
	static uint8_t into[LANE_PIECE];
	struct lane_memory writer = memory(), own = memory();
	struct lane_rx r;
	bool hostile = false;
	lane_rx_reset(&r, &own, &writer, 0);
	r.slot = k;
	r.window_end = window_end;
	uint8_t *ring = (uint8_t *)(uintptr_t)r.ring;
	for (uint64_t later = k; later < k + SLOTS; later++) // the others are not posted yet
		ring[later % SLOTS * LANE_SLOT + 7] = later / SLOTS % 2 ? 0x80 : 0;
	memcpy(ring + k % SLOTS * LANE_SLOT, slot, LANE_SLOT);
	printf("slot %lu %lu ", k, window_end);
	print_bytes(slot, LANE_SLOT);
	enum lane_look look = lane_look(&r);
	uint64_t a = 0, b = 0, tag = 0;
	struct iovec iov = {into, sizeof into};
	struct cursor cur = cursor_make(&iov, 1);
	if (look == LOOK_DATA)
		a = lane_read(&r, &cur, &hostile);
	else if (look == LOOK_CONTROL)
		tag = lane_take(&r, &a, &b);
	if (hostile) // found out when it is read
		look = LOOK_HOSTILE;
	printf("is %s", looks[look]);
	if (look == LOOK_DATA)
		printf(" %lu %s", a, r.rma_bytes ? "window" : "slot");
	if (look == LOOK_CONTROL)
		printf(" %lu %lu %lu", tag, a, b);
	printf(" # %s\n", name);
	free(writer.base);
	free(own.base);
}

// writer has come to slot number k and window position `next`, and everything
// before is read.
static struct lane_tx writer(uint64_t k, uint64_t next)
{
	struct lane_memory own = memory(), peer = memory();
	struct lane_tx t;
	lane_tx_reset(&t, &own, &peer, 0);
	t.slot = t.slots_taken = k;
	t.next = t.floor = t.window_taken = next;
	lane_ctl(&peer, 0)->slots_taken = k;
	lane_ctl(&peer, 0)->window_taken = next;
	return t;
}

static void written(const char *name, uint64_t k, uint64_t next, size_t n)
{
	struct lane_tx t = writer(k, next);
	uint8_t text[LANE_PIECE];
	memset(text, 'x', sizeof text);
	struct iovec iov = {text, n};
	struct cursor cur = cursor_make(&iov, 1);
	if (lane_write(&t, &cur, 480) == 0)
		fail("nothing written");
	judge(name, t.ring + k % SLOTS * LANE_SLOT, k, next);
}

static void posted(const char *name, uint64_t k, enum lane_tag tag, uint64_t a, uint64_t b)
{
	struct lane_tx t = writer(k, 0);
	if (!lane_post(&t, tag, a, b))
		fail("nothing posted");
	judge(name, t.ring + k % SLOTS * LANE_SLOT, k, 0);
}

static void forged(const char *name, uint64_t k, uint64_t window_end, uint64_t status, uint64_t a, uint64_t b)
{
	uint64_t slot[LANE_SLOT / 8] = {status, a, b};
	judge(name, (uint8_t *)slot, k, window_end);
}

static uint64_t status(uint64_t valid, uint64_t length, uint64_t tag) { return valid << 63 | length << 38 | tag << 32; }

int slots(void)
{
	written("VELO_LAST", 0, 0, 5);
	written("VELO_LAST, full", 3, 0, 120);
	written("VELO, more follows", 15, 0, 121);
	written("VELO_LAST, second lap", 16, 0, 1);
	written("VELO_LAST, third lap", 32 + 7, 0, 1);
	written("RMA_INFO", 1, 0, 481);
	written("RMA_INFO, an empty window starts again", 1, 481, 10000);
	written("RMA_INFO, a whole window", 1, 0, LANE_PIECE);
	posted("SWITCH", 0, TAG_SWITCH, 123456789, 0);
	posted("BACK, second lap", 20, TAG_BACK, 1ull << 40, 0);
	posted("SHUTDOWN of the write side", 2, TAG_SHUTDOWN, HOW_WRITE, 77);
	posted("SHUTDOWN by close", 2, TAG_SHUTDOWN, HOW_CLOSE, 0);
	posted("ABORT", 2, TAG_ABORT, 0, 0);

	forged("untouched, first lap", 0, 0, 0, 0, 0);
	forged("left from the first lap", 16, 0, status(1, 5, TAG_VELO), 0, 0);
	forged("left from the second lap", 32, 0, status(0, 5, TAG_VELO), 0, 0);
	forged("tag 0", 0, 0, status(1, 16, 0), 0, 0);
	forged("tag 4", 0, 0, status(1, 16, 4), 0, 0);
	forged("tag 9", 0, 0, status(1, 16, 9), 0, 0);
	forged("tag 63", 0, 0, status(1, 16, 63), 0, 0);
	forged("zeroes, second lap", 16, 0, 0, 0, 0);
	forged("a reserved bit, 32 bits down", 0, 0, status(1, 5, TAG_VELO) | 1, 0, 0);
	forged("a reserved bit, 31", 0, 0, status(1, 5, TAG_VELO) | 1u << 31, 0, 0);
	forged("a reserved bit, 50", 0, 0, status(1, 5, TAG_VELO) | 1ull << 50, 0, 0);
	forged("a reserved bit, 62", 0, 0, status(1, 5, TAG_VELO) | 1ull << 62, 0, 0);
	forged("VELO of nothing", 0, 0, status(1, 0, TAG_VELO), 0, 0);
	forged("VELO_LAST of nothing", 0, 0, status(1, 0, TAG_VELO_LAST), 0, 0);
	forged("VELO too long", 0, 0, status(1, 121, TAG_VELO), 0, 0);
	forged("VELO much too long", 0, 0, status(1, 4095, TAG_VELO), 0, 0);
	forged("RMA_INFO too short", 0, 0, status(1, 15, TAG_RMA_INFO), 0, 100);
	forged("SWITCH too long", 0, 0, status(1, 17, TAG_SWITCH), 0, 0);
	forged("a piece of nothing", 0, 0, status(1, 16, TAG_RMA_INFO), 0, 0);
	forged("a piece over the end of the window", 0, 0, status(1, 16, TAG_RMA_INFO), WINDOW - 10, 11);
	forged("a piece up to the end of the window", 0, 0, status(1, 16, TAG_RMA_INFO), WINDOW - 10, 10);
	forged("a piece longer than the window", 0, 0, status(1, 16, TAG_RMA_INFO), 0, WINDOW + 1);
	forged("a piece of a length that is too large by 2^64", 0, 0, status(1, 16, TAG_RMA_INFO), 0, ~0ull);
	forged("a piece before the last one", 0, 5000, status(1, 16, TAG_RMA_INFO), 4999, 10);
	forged("a piece behind the last one", 0, 5000, status(1, 16, TAG_RMA_INFO), 5000, 10);
	forged("a piece behind a gap", 0, 5000, status(1, 16, TAG_RMA_INFO), 3 * WINDOW, 10);
	forged("a position that is too large", 0, 0, status(1, 16, TAG_RMA_INFO), 1ull << 62, 10);
	return 0;
}
