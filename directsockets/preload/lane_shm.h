// SPDX-License-Identifier: Apache-2.0
//
// Memory shared between two processes: its layout (see ext-ds.md) and the
// two ends of a lane in it.
//
// A channel has one memory file per owner. Only the owner can write it: it
// carries F_SEAL_FUTURE_WRITE from the moment the owner has mapped it. A
// lane's writer puts slots and window bytes into its own file and reads the
// reader's credit from the reader's file, so no byte has two writers, and
// whatever comes from the peer's file is a claim to be checked.
#ifndef LANE_SHM_H
#define LANE_SHM_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/uio.h>

#include "clock.h"
#include "pool.h"

#ifndef LANE_VERSION_TESTED // a library of another version, for tests
#define LANE_VERSION_TESTED 3
#endif
enum {
	LANE_VERSION = LANE_VERSION_TESTED,
	LANE_OLDEST = LANE_VERSION, // of those that are spoken; from 3 on the one before is
	LANE_HEAD = 8192,     // bytes of struct lane_head
	LANE_CTL = 256,       // bytes of struct lane_ctl
	LANE_SLOT = 128,      // bytes of a VELO slot
	LANE_PAYLOAD = 120,   // bytes of payload in it
	LANE_RESERVED = 4,    // slots that only control messages may take
	LANE_WAITERS = 8,     // waiters per side of a channel
	LANE_MOST = 4096,     // lanes of a file
	LANE_PIECE = 64 << 10 // most bytes announced by one RMA_INFO
};
#define LANE_MAGIC 0x334e414c53445845ull // "EXDSLAN3"

// Tags, the user tag of the slot's status word.
enum lane_tag {
	TAG_VELO = 1,      // stream bytes; more of the same write follow
	TAG_VELO_LAST = 2, // stream bytes
	TAG_RMA_INFO = 3,  // {u64 at, u64 length}: stream bytes in the windows
	TAG_ZCOPY = 4,     // {u64 address, u64 length}: stream bytes in the writer's own memory
	TAG_SHUTDOWN = 5,  // {u64 how, u64 total lane bytes}
	TAG_SWITCH = 6,    // {u64 N, u64 0}: the stream continues here after N TCP bytes
	TAG_BACK = 7,      // {u64 M, u64 0}: it continues on TCP after M lane bytes
	TAG_ABORT = 8,     // {u64 reason, u64 0}: reset
	TAG_BUFFER = 9,    // {u64 at, u64 length}: an advert as TAG_ZCOPY, of bytes in the windows
};

// What TAG_SHUTDOWN carries in `how`.
enum lane_how { HOW_WRITE = 1, HOW_CLOSE = 2 };

// Offset 0 of a memory file.
struct lane_head {
	uint64_t magic;
	uint32_t version, lanes, slots, window;
	uint64_t size; // of the whole file
	uint32_t windows;
	uint32_t pad0[7];
	_Atomic uint64_t posted; // messages sent on the control socket so far
	uint64_t pad1[7];
	_Atomic uint64_t cpu; // where the owner last ran
	uint64_t pad2[7];
	uint64_t pad3[8];
	struct {
		_Atomic uint64_t epoch; // odd: this waiter of the owner sleeps
		uint64_t pad[7];
	} waiter[LANE_WAITERS];
	uint64_t pad4[32];
	struct {
		_Atomic uint64_t count; // of the marks below, for this waiter of the peer
		uint64_t pad[7];
	} marked[LANE_WAITERS];
	uint64_t pad5[320];
	_Atomic uint64_t mark[LANE_WAITERS][LANE_MOST / 64]; // a bit per lane: it has changed
};

// One per lane at LANE_HEAD + lane * LANE_CTL. All of it is written by the owner.
struct lane_ctl {
	_Atomic uint64_t generation; // of the attachment; 0: the owner let go
	_Atomic uint64_t closed;     // the owner closed or aborted its end
	_Atomic uint64_t shut;       // the owner shut down its write side
	uint64_t pad0[5];
	_Atomic uint64_t consent; // the owner lets the peer switch for the k-th time
	// 0, or one more than the lane bytes the owner has taken and will ever take:
	// it asks the peer to return to TCP and to send the rest there.
	_Atomic uint64_t go_back;
	uint64_t pad1[6];
	_Atomic uint64_t slots_taken;  // credit: slots the owner has consumed
	_Atomic uint64_t window_taken; // credit: window position up to which it has
	_Atomic uint64_t zcopy_taken;  // credit: bytes it has copied out of adverts
	_Atomic uint64_t zcopy_busy;   // 1: it is copying
	_Atomic uint64_t zcopy_least;  // shortest advert that it takes; 0: none
	uint64_t pad2[3];
	_Atomic uint64_t rx_waiters; // bit w: wake waiter w after posting; and MASK_ASKED
	_Atomic uint64_t tx_waiters; // bit w: wake waiter w after giving credit
	_Atomic uint64_t zcopy_withdrawn; // so many of the owner's adverts are over, taken or not
	_Atomic uint64_t slots_due;       // with less credit than this tx_waiters are not to be rung
	_Atomic uint64_t window_due;      // likewise
	uint64_t pad3[3];
};

// The offsets that ext-ds.md gives. Peers of this version rely on each of them.
_Static_assert(offsetof(struct lane_head, magic) == 0, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, version) == 8, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, lanes) == 12, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, slots) == 16, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, window) == 20, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, size) == 24, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, posted) == 64, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, cpu) == 128, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, waiter) == 256, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, waiter[1].epoch) == 256 + 64, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, windows) == 32, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, marked) == 1024, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, marked[1].count) == 1024 + 64, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_head, mark) == 4096, "ext-ds.md, head");
_Static_assert(sizeof(struct lane_head) == LANE_HEAD, "ext-ds.md, head");
_Static_assert(offsetof(struct lane_ctl, generation) == 0, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, closed) == 8, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, shut) == 16, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, consent) == 64, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, go_back) == 72, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, slots_taken) == 128, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, window_taken) == 136, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, zcopy_taken) == 144, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, zcopy_busy) == 152, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, zcopy_least) == 160, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, rx_waiters) == 192, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, tx_waiters) == 200, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, zcopy_withdrawn) == 208, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, slots_due) == 216, "ext-ds.md, control block");
_Static_assert(offsetof(struct lane_ctl, window_due) == 224, "ext-ds.md, control block");
_Static_assert(sizeof(struct lane_ctl) == LANE_CTL, "ext-ds.md, control block");
_Static_assert(LANE_PAYLOAD == LANE_SLOT - 8, "ext-ds.md, slots");

// load_acquire loads a word of a memory file, the one of the peer too, which is mapped
// read-only: once, before all that is read after it.
static inline uint64_t load_acquire(const void *word)
{
	return atomic_load_explicit((_Atomic uint64_t *)(uintptr_t)word, memory_order_acquire);
}

// The words of masks: who is to be rung and, in rx_waiters, for whom to make a mark
// and how often that was asked for.
#define MASK_RING ((1ull << LANE_WAITERS) - 1)
#define MASK_MARK(word) ((word) >> 8 & 7)
#define MASK_ASKED(word) ((word) >> 16)

// A mapped memory file; geometry is what was checked when it was mapped.
struct lane_memory {
	uint8_t *base;
	uint64_t size;
	uint32_t lanes, slots, windows, window;
};

uint64_t lane_memory_size(uint32_t lanes, uint32_t slots, uint32_t windows, uint32_t window);

// lane_geometry_legal: these numbers are within the limits.
bool lane_geometry_legal(uint32_t lanes, uint32_t slots, uint32_t windows, uint32_t window);

static inline struct lane_head *lane_head(const struct lane_memory *m)
{
	return (struct lane_head *)m->base;
}
static inline struct lane_ctl *lane_ctl(const struct lane_memory *m, uint32_t lane)
{
	return (struct lane_ctl *)(m->base + LANE_HEAD + (uint64_t)lane * LANE_CTL);
}

// lane_slot is where slot number k lies in a ring, and lane_parity the valid bit that
// says that it is posted, 1 on the first lap. The number of slots is a power of two.
static inline size_t lane_slot(uint64_t k, uint32_t slots) { return (k & (slots - 1)) * LANE_SLOT; }
static inline uint64_t lane_parity(uint64_t k, uint32_t slots) { return !(k & slots); }

// A cursor walks over an iovec.
struct cursor {
	const struct iovec *iov;
	int n;
	size_t off;  // in iov[0]
	size_t left; // in all
};
struct cursor cursor_make(const struct iovec *iov, int n);
void cursor_get(struct cursor *c, void *to, size_t n);         // copies out of the iovec
void cursor_put(struct cursor *c, const void *from, size_t n); // copies into it
void cursor_skip(struct cursor *c, size_t n);

// The writing end of a lane. Guarded by the connection's tx lock.
struct lane_tx {
	uint8_t *ring, *windows;     // our memory
	const struct lane_ctl *peer; // the reader's, in its memory
	struct lane_pool *pool;
	uint32_t lane, slots, window_size;
	uint64_t windows_size; // bytes of all
	int32_t window;        // the window that we had last, or -1
	uint32_t extent;       // bytes of it that we use
	uint64_t base;         // position of its beginning
	uint64_t slot;         // number of the next slot
	uint64_t slots_taken;  // the reader's credit, as last checked
	uint64_t next;         // next window position: bytes that went by windows
	uint64_t window_taken; // the reader's credit, as last checked
	_Atomic uint64_t bytes; // stream bytes put on the lane; a hint to who has no lock
	uint64_t rma_bytes;    // of these, in the window
	uint64_t switched;     // slot of the last TAG_SWITCH
	struct {               // bytes that the reader handed back, to be sent by TCP
		uint64_t first, slot; // the slots that these began in, and begin in now
		uint64_t left;
		uint32_t off; // bytes of the slot that are not among them
	} again;
	struct {                // the last advert of a blocking write; zcopy.c
		uint64_t number; // of it
		uint64_t left;   // bytes not taken yet, while it is out
		uint64_t taken;  // the reader's zcopy_taken, as last checked
		bool owed;       // the call that made it has not yet seen what became of it
		bool inside;     // it lies in a registered buffer
	} advert;
	bool poor;   // no window was left
	bool broken; // the reader's credit made no sense
	bool dated;  // the reader wants to know when slots were posted
};

// The reading end. Guarded by the connection's rx lock.
struct lane_rx {
	const uint8_t *ring, *windows; // the writer's memory
	struct lane_ctl *own;          // ours: credit
	const struct lane_ctl *peer;   // the writer's
	uint32_t slots, window_size;
	uint64_t windows_size; // bytes of all
	uint64_t slot;        // number of the next slot
	uint32_t off;         // bytes consumed of it
	uint64_t piece;       // where in the windows the rest of the announced piece is
	uint64_t piece_left;  // bytes of that
	uint64_t window_end;  // window position of the end of the last piece
	uint64_t bytes;       // stream bytes taken off the lane
	uint64_t rma_bytes;   // of these, out of the window
	uint64_t turns;       // SWITCH and BACK taken
	struct {               // the last advert that we came to
		uint64_t number;
		uint64_t address, left; // in the writer's memory, or, inside, in its windows
		uint64_t taken;         // bytes of all adverts
		bool stuck;             // it cannot be copied: the writer has to withdraw it
		bool over;              // it is withdrawn, and nothing has come behind it yet
		bool invited;           // we take adverts
		bool inside;            // it lies in a registered buffer
	} advert;
};

// A HINT reads without the lock what others may be changing; who asks for it looks
// again under the lock before anything follows from it, or says why not.
#define HINT __attribute__((no_sanitize("thread")))

void lane_tx_reset(struct lane_tx *t, struct lane_pool *pool, uint32_t lane);
void lane_rx_reset(struct lane_rx *r, const struct lane_memory *own, const struct lane_memory *peer, uint32_t lane);

// lane_write puts bytes on the lane until the cursor or the room ends, at most
// one window piece per call, and none where it finds that it is poor; after that all
// go by slots. It returns how many; see broken.
size_t lane_write(struct lane_tx *t, struct cursor *c, size_t velo_max);

// lane_advertise announces n bytes of our own memory, if there is a slot. They count
// in `bytes` as they are taken, and nothing follows until lane_advert_out says no.
bool lane_advertise(struct lane_tx *t, const void *address, size_t n);

// lane_inside: these bytes lie in the windows, as those of a registered buffer do. What
// else is there no program has.
static inline bool lane_inside(const struct lane_tx *t, const void *address, size_t n)
{
	uint64_t at = (uintptr_t)address - (uintptr_t)t->windows;
	return at < t->windows_size && n <= t->windows_size - at;
}

// lane_advert_out: the advert is not taken yet. lane_wanted: nobody has begun to withdraw
// it, and the reader takes it. lane_advert_end: it is withdrawn, and the reader is not at it.
bool lane_advert_out(struct lane_tx *t);
bool lane_wanted(const struct lane_tx *t);
void lane_advert_end(struct lane_tx *t);

// lane_reserve finds room for a piece of up to n bytes in the window, which the
// caller fills and announces with lane_commit, of which n may be 0; 0 when there is none.
size_t lane_reserve(struct lane_tx *t, size_t n, uint8_t **to);
void lane_commit(struct lane_tx *t, size_t n);
// lane_lend announces n bytes that lie elsewhere in our windows instead.
void lane_lend(struct lane_tx *t, const uint8_t *from, size_t n);

// lane_rich: a window can be had again; poor is over.
bool lane_rich(struct lane_tx *t);

// lane_post posts a control message; false when even the reserved slots are taken.
bool lane_post(struct lane_tx *t, enum lane_tag tag, uint64_t a, uint64_t b);

// lane_writable: a write after this takes at least one byte.
bool lane_writable(struct lane_tx *t);

// lane_ask has the reader ring when there is credit for what lane_writable asks for, and not
// before. It is no more than what was posted, so who reads all rings.
HINT void lane_ask(const struct lane_tx *t);

// lane_due: there is as much credit as a writer that waits for room has asked for.
static inline bool lane_due(const struct lane_ctl *reader, const struct lane_ctl *writer)
{
	return load_acquire(&reader->slots_taken) >= load_acquire(&writer->slots_due) &&
	       load_acquire(&reader->window_taken) >= load_acquire(&writer->window_due);
}

// lane_credit counts what the reader has given, as last checked. It is no more than was posted.
static inline uint64_t lane_credit(const struct lane_tx *t) { return t->slots_taken + t->window_taken + t->advert.taken; }

// lane_joined: the reader has taken the last TAG_SWITCH.
bool lane_joined(struct lane_tx *t);

// lane_unread counts the stream bytes that the reader has not given credit for.
uint64_t lane_unread(struct lane_tx *t);

// lane_withdraw takes back all stream bytes but the first `taken` of the lane, which
// the reader has; false: it cannot have. They stay where they are until lane_again,
// which gives up to n pieces of them, and lane_again_sent have moved them to TCP, or
// lane_forget drops them.
bool lane_withdraw(struct lane_tx *t, uint64_t taken);
int lane_again(const struct lane_tx *t, struct iovec *iov, int n);
void lane_again_sent(struct lane_tx *t, uint64_t n);
void lane_forget(struct lane_tx *t);

enum lane_look {
	LOOK_NONE,    // nothing posted
	LOOK_DATA,    // stream bytes
	LOOK_CONTROL, // a control message
	LOOK_HOSTILE, // something no honest writer posts
};

// lane_look says what comes next without taking it.
enum lane_look lane_look(const struct lane_rx *r);

// lane_valid is a cheap lane_look: is a slot with this number posted? Of the cursor it
// reads only what never changes.
HINT static inline bool lane_valid(const struct lane_rx *r, uint64_t slot)
{
	return load_acquire(r->ring + lane_slot(slot, r->slots)) >> 63 == lane_parity(slot, r->slots);
}

// lane_date is a time of clock_ticks as slots have it, never 0. lane_age is how long what is read next has been there,
// for order only, in the same unit: 0 if nobody said, the most if it came by TCP or a part has been read.
static inline uint32_t lane_date(uint64_t ticks) { return (uint32_t)(ticks >> 5) | 1; }
HINT static inline uint32_t lane_age(const struct lane_rx *r, uint32_t now)
{
	if (r->piece_left || r->off || r->advert.left)
		return UINT32_MAX;
	uint64_t status = load_acquire(r->ring + lane_slot(r->slot, r->slots));
	uint32_t date = (uint32_t)status, age = now - date;
	if (status >> 63 != lane_parity(r->slot, r->slots))
		return UINT32_MAX;
	return date && age < UINT32_MAX / 2 ? age : 0;
}

// lane_expect has the processor fetch the slot that is read next, and lane_intend the one
// that is written next. The other end's processor has both; they should be here by then.
HINT static inline const void *lane_next(const struct lane_rx *r) { return r->ring + lane_slot(r->slot, r->slots); }
static inline void lane_expect(const struct lane_rx *r) { __builtin_prefetch(lane_next(r)); }
HINT static inline void lane_intend(const struct lane_tx *t)
{
	const uint8_t *slot = t->ring + lane_slot(t->slot, t->slots);
#ifdef __x86_64__
	__asm__ volatile("prefetchw %0" : : "m"(*slot)); // one that does not know it does nothing
#else
	__builtin_prefetch(slot, 1);
#endif
}

// lane_plain: what comes next is stream bytes that lie on the lane, no advert.
HINT bool lane_plain(const struct lane_rx *r);

// lane_pure: nothing but stream bytes is posted. It says no, too, of more than a few slots, and while
// somebody reads.
HINT bool lane_pure(const struct lane_rx *r);

// lane_news moves *slot behind what is posted, and says whether stream bytes or an
// end of stream were among it, taken since or not; *turns counts what is neither.
HINT bool lane_news(const struct lane_rx *r, uint64_t *slot, uint64_t *turns);

// lane_last: of the slots below that one, which lane_news went through, the last is not
// taken and has this tag.
HINT bool lane_last(const struct lane_rx *r, uint64_t slot, uint32_t tag);

// lane_read takes stream bytes until the cursor ends or something else comes, such as an
// advert, which it opens; *hostile is set when that is nonsense. Credit is given by lane_give.
size_t lane_read(struct lane_rx *r, struct cursor *c, bool *hostile);
void lane_give(struct lane_rx *r);

// lane_take takes a control message.
enum lane_tag lane_take(struct lane_rx *r, uint64_t *a, uint64_t *b);

// lane_skip looks for the TAG_BACK that ends a withdrawal and goes behind it.
// LOOK_NONE: it is not posted yet. LOOK_DATA: it is, but for bytes that we have not
// taken, or the writer ended there: they cannot be had by TCP.
enum lane_look lane_skip(struct lane_rx *r);

// lane_meet opens an advert that comes next. It drops one that is withdrawn once something
// is behind it: true.
bool lane_meet(struct lane_rx *r);

// lane_owed: the advert that we came to cannot be had, and the writer has yet to put its
// bytes on the lane.
HINT static inline bool lane_owed(const struct lane_rx *r)
{
	return r->advert.left && (r->advert.stuck || r->advert.over) && !lane_valid(r, r->slot);
}

// lane_void: the advert that we came to is withdrawn.
bool lane_void(const struct lane_rx *r);

// lane_advertised is what the advert that we came to adds to `before` bytes that can be had:
// what the window has room for besides, since as much comes if it is withdrawn.
size_t lane_advertised(const struct lane_rx *r, size_t before);

// lane_available counts the stream bytes that wait, up to limit, and up to the next
// control message or through all of them.
size_t lane_available(const struct lane_rx *r, size_t limit, bool through);

#endif
