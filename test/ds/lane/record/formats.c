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
	FIELD("head", lane_head, windows);
	FIELD("head", lane_head, posted);
	FIELD("head", lane_head, cpu);
	FIELD("head", lane_head, waiter);
	FIELD("head", lane_head, marked);
	FIELD("head", lane_head, mark);
	FIELD("control", lane_ctl, generation);
	FIELD("control", lane_ctl, closed);
	FIELD("control", lane_ctl, shut);
	FIELD("control", lane_ctl, consent);
	FIELD("control", lane_ctl, go_back);
	FIELD("control", lane_ctl, slots_taken);
	FIELD("control", lane_ctl, window_taken);
	FIELD("control", lane_ctl, zcopy_taken);
	FIELD("control", lane_ctl, zcopy_busy);
	FIELD("control", lane_ctl, zcopy_least);
	FIELD("control", lane_ctl, rx_waiters);
	FIELD("control", lane_ctl, tx_waiters);
	FIELD("control", lane_ctl, zcopy_withdrawn);
	FIELD("control", lane_ctl, slots_due);
	FIELD("control", lane_ctl, window_due);
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
	FIELD("message", message, windows);
	FIELD("message", message, features);
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
	VALUE("tag", "ZCOPY", TAG_ZCOPY);
	VALUE("tag", "SHUTDOWN", TAG_SHUTDOWN);
	VALUE("tag", "SWITCH", TAG_SWITCH);
	VALUE("tag", "BACK", TAG_BACK);
	VALUE("tag", "ABORT", TAG_ABORT);
	VALUE("tag", "BUFFER", TAG_BUFFER);
	VALUE("feature", "BUFFER", FEATURE_BUFFER);
	VALUE("feature", "DATE", FEATURE_DATE);
	VALUE("kind", "HELLO", MESSAGE_HELLO);
	VALUE("kind", "ATTACH", MESSAGE_ATTACH);
	VALUE("kind", "ATTACH_OK", MESSAGE_ATTACH_OK);
	VALUE("kind", "ATTACH_NO", MESSAGE_ATTACH_NO);
	for (int i = 0; i < REASON_COUNT; i++)
		VALUE("reason", reason_names[i], i);
	for (int i = 0; i <= CONN_RESTING; i++)
		VALUE("state", state_names[i], i);
	static const uint32_t files[][4] = {
		{2, 16, 2, 16 << 10}, {4096, 64, 1024, 256 << 10}, {3, 32, 1, 64 << 10}, {4096, 1024, 4096, 16 << 20}};
	for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
		const uint32_t *f = files[i];
		printf("file %u %u %u %u %lu\n", f[0], f[1], f[2], f[3], lane_memory_size(f[0], f[1], f[2], f[3]));
	}
	return 0;
}

enum { SLOTS = 16, WINDOW = 16 << 10, LANES = 2, WINDOWS = 2, ALL = WINDOWS * WINDOW };

static struct lane_memory memory(void)
{
	struct lane_memory m = {.lanes = LANES, .slots = SLOTS, .windows = WINDOWS, .window = WINDOW};
	m.size = lane_memory_size(LANES, SLOTS, WINDOWS, WINDOW);
	m.base = calloc(1, m.size);
	return m;
}

// judge says what a reader takes the slot for that it comes to as number k.
static void judge(const char *name, const uint8_t *slot, uint64_t k)
{
	static const char *const looks[] = {"nothing", "data", "control", "hostile"};
	static uint8_t into[LANE_PIECE];
	struct lane_memory writer = memory(), own = memory();
	struct lane_rx r;
	bool hostile = false;
	lane_rx_reset(&r, &own, &writer, 0);
	r.slot = k;
	uint8_t *ring = (uint8_t *)(uintptr_t)r.ring;
	for (uint64_t later = k; later < k + SLOTS; later++) // the others are not posted yet
		ring[later % SLOTS * LANE_SLOT + 7] = later / SLOTS % 2 ? 0x80 : 0;
	memcpy(ring + k % SLOTS * LANE_SLOT, slot, LANE_SLOT);
	printf("slot %lu ", k);
	print_bytes(slot, LANE_SLOT);
	enum lane_look look = lane_look(&r);
	uint32_t as = slot[4] & 0x3f;
	if (lane_plain(&r) != (look == LOOK_DATA && as != TAG_ZCOPY && as != TAG_BUFFER))
		fail("lane_plain does not agree with lane_look");
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
	if (look == LOOK_DATA && r.advert.left)
		printf(" %lu advert", r.advert.left);
	else if (look == LOOK_DATA)
		printf(" %lu %s", a, r.rma_bytes ? "window" : "slot");
	if (look == LOOK_CONTROL)
		printf(" %lu %lu %lu", tag, a, b);
	printf(" # %s\n", name);
	free(writer.base);
	free(own.base);
}

static struct lane_memory own, peer; // of the writer, and of its reader

// writer has come to slot number k and window position `next`, and everything
// before is read. So many windows are in use by others.
static struct lane_tx writer(uint64_t k, uint64_t next, uint32_t others)
{
	static struct lane_pool pool;
	struct lane_tx t;
	free(own.base);
	free(peer.base);
	own = memory();
	peer = memory();
	pool_end(&pool);
	pool_init(&pool, &own, &peer, WINDOW);
	lane_ctl(&peer, 1)->generation = 1;
	for (uint32_t w = 0; w < others; w++)
		pool_unpin(&pool, 1, (uint32_t)pool_take(&pool, 1), 1);
	lane_tx_reset(&t, &pool, 0);
	t.slot = t.slots_taken = k;
	t.next = t.window_taken = next;
	lane_ctl(&peer, 0)->slots_taken = k;
	lane_ctl(&peer, 0)->window_taken = next;
	return t;
}

static void written(const char *name, uint64_t k, uint64_t next, uint32_t others, size_t n)
{
	struct lane_tx t = writer(k, next, others);
	uint8_t text[LANE_PIECE];
	memset(text, 'x', sizeof text);
	struct iovec iov = {text, n};
	struct cursor cur = cursor_make(&iov, 1);
	if (lane_write(&t, &cur, 480) == 0 && lane_write(&t, &cur, 480) == 0) // the first may find no window
		fail("nothing written");
	judge(name, t.ring + k % SLOTS * LANE_SLOT, k);
}

static void posted(const char *name, uint64_t k, enum lane_tag tag, uint64_t a, uint64_t b)
{
	struct lane_tx t = writer(k, 0, 0);
	if (!lane_post(&t, tag, a, b))
		fail("nothing posted");
	judge(name, t.ring + k % SLOTS * LANE_SLOT, k);
}

// advertised: n bytes out of a registered buffer that begins at byte `at` of the windows, or of other memory.
static void advertised(const char *name, uint64_t k, uint64_t at, size_t n)
{
	struct lane_tx t = writer(k, 0, 0);
	if (!lane_advertise(&t, t.windows + at, n))
		fail("nothing advertised");
	judge(name, t.ring + k % SLOTS * LANE_SLOT, k);
}

static void forged(const char *name, uint64_t k, uint64_t status, uint64_t a, uint64_t b)
{
	uint64_t slot[LANE_SLOT / 8] = {status, a, b};
	judge(name, (uint8_t *)slot, k);
}

static uint64_t status(uint64_t valid, uint64_t length, uint64_t tag) { return valid << 63 | length << 38 | tag << 32; }

int slots(void)
{
	written("VELO_LAST", 0, 0, 0, 5);
	written("VELO_LAST, full", 3, 0, 0, 120);
	written("VELO, more follows", 15, 0, 0, 121);
	written("VELO_LAST, second lap", 16, 0, 0, 1);
	written("VELO_LAST, third lap", 32 + 7, 0, 0, 1);
	written("RMA_INFO", 1, 0, 0, 481);
	written("RMA_INFO, an empty window starts again", 1, 481, 0, 10000);
	written("RMA_INFO, a whole window", 1, 0, 0, LANE_PIECE);
	written("RMA_INFO, the second window", 1, 0, 1, 481);
	written("no window is left", 1, 0, WINDOWS, 481);
	posted("SWITCH", 0, TAG_SWITCH, 123456789, 0);
	posted("BACK, second lap", 20, TAG_BACK, 1ull << 40, 0);
	posted("SHUTDOWN of the write side", 2, TAG_SHUTDOWN, HOW_WRITE, 77);
	posted("SHUTDOWN by close", 2, TAG_SHUTDOWN, HOW_CLOSE, 0);
	posted("ABORT", 2, TAG_ABORT, 0, 0);
	advertised("BUFFER", 1, 0, ALL);
	advertised("BUFFER inside the windows, second lap", 16, 4097, WINDOW);

	forged("untouched, first lap", 0, 0, 0, 0);
	forged("left from the first lap", 16, status(1, 5, TAG_VELO), 0, 0);
	forged("left from the second lap", 32, status(0, 5, TAG_VELO), 0, 0);
	forged("tag 0", 0, status(1, 16, 0), 0, 0);
	forged("an advert", 0, status(1, 16, TAG_ZCOPY), 1ull << 46, 1 << 30);
	forged("an advert up to the end", 0, status(1, 16, TAG_ZCOPY), ~1ull, 1);
	forged("an advert over the end", 0, status(1, 16, TAG_ZCOPY), ~0ull, 1);
	forged("an advert of nothing", 0, status(1, 16, TAG_ZCOPY), 1ull << 46, 0);
	forged("an advert of a length that is too large", 0, status(1, 16, TAG_ZCOPY), 0, 1ull << 62);
	forged("an advert that is too short", 0, status(1, 15, TAG_ZCOPY), 1ull << 46, 1 << 30);
	forged("a buffer up to the end of the windows", 0, status(1, 16, TAG_BUFFER), ALL - 10, 10);
	forged("a buffer over the end of the windows", 0, status(1, 16, TAG_BUFFER), ALL - 10, 11);
	forged("a buffer behind the windows", 0, status(1, 16, TAG_BUFFER), ALL, 1);
	forged("a buffer at a place that is too large by 2^64", 0, status(1, 16, TAG_BUFFER), ~0ull, 1);
	forged("a buffer over the end of the numbers", 0, status(1, 16, TAG_BUFFER), ~0ull, 2);
	forged("a buffer longer than the windows", 0, status(1, 16, TAG_BUFFER), 0, ALL + 1);
	forged("a buffer of a length that is too large by 2^64", 0, status(1, 16, TAG_BUFFER), 1, ~0ull);
	forged("a buffer of nothing", 0, status(1, 16, TAG_BUFFER), 0, 0);
	forged("a buffer of nothing behind the windows", 0, status(1, 16, TAG_BUFFER), ALL, 0);
	forged("a buffer that is too short", 0, status(1, 15, TAG_BUFFER), 0, 10);
	forged("a buffer that is too long", 0, status(1, 17, TAG_BUFFER), 0, 10);
	forged("tag 10", 0, status(1, 16, 10), 0, 0);
	forged("tag 63", 0, status(1, 16, 63), 0, 0);
	forged("zeroes, second lap", 16, 0, 0, 0);
	forged("a date, of whom none was asked", 0, status(1, 5, TAG_VELO) | 1, 0, 0);
	forged("a date, its highest bit", 0, status(1, 5, TAG_VELO) | 1u << 31, 0, 0);
	forged("a reserved bit, 50", 0, status(1, 5, TAG_VELO) | 1ull << 50, 0, 0);
	forged("a reserved bit, 62", 0, status(1, 5, TAG_VELO) | 1ull << 62, 0, 0);
	forged("VELO of nothing", 0, status(1, 0, TAG_VELO), 0, 0);
	forged("VELO_LAST of nothing", 0, status(1, 0, TAG_VELO_LAST), 0, 0);
	forged("VELO too long", 0, status(1, 121, TAG_VELO), 0, 0);
	forged("VELO much too long", 0, status(1, 4095, TAG_VELO), 0, 0);
	forged("RMA_INFO too short", 0, status(1, 15, TAG_RMA_INFO), 0, 100);
	forged("SWITCH too long", 0, status(1, 17, TAG_SWITCH), 0, 0);
	forged("a piece of nothing", 0, status(1, 16, TAG_RMA_INFO), 0, 0);
	forged("a piece over the end of the windows", 0, status(1, 16, TAG_RMA_INFO), ALL - 10, 11);
	forged("a piece up to the end of the windows", 0, status(1, 16, TAG_RMA_INFO), ALL - 10, 10);
	forged("a piece behind the windows", 0, status(1, 16, TAG_RMA_INFO), ALL, 1);
	forged("a piece at a place that is too large by 2^64", 0, status(1, 16, TAG_RMA_INFO), ~0ull, 1);
	forged("a piece longer than the windows", 0, status(1, 16, TAG_RMA_INFO), 0, ALL + 1);
	forged("a piece longer than pieces are", 0, status(1, 16, TAG_RMA_INFO), 0, LANE_PIECE + 1);
	forged("a piece of a length that is too large by 2^64", 0, status(1, 16, TAG_RMA_INFO), 0, ~0ull);
	forged("a piece in two windows", 0, status(1, 16, TAG_RMA_INFO), WINDOW - 10, 20);
	return 0;
}
