// SPDX-License-Identifier: Apache-2.0
//
// A channel joins two processes: one memory file per owner, eventfds, and a
// control socket that names connections and tells when the peer dies.
#ifndef CHANNEL_H
#define CHANNEL_H

#include "family.h"

enum { CHANNEL_MESSAGE = 256 };

// The messages on the control socket. Host byte order, one per packet.
enum message_kind {
	MESSAGE_HELLO = 1,     // first from either side; fds: memory, LANE_WAITERS eventfds
	MESSAGE_ATTACH = 2,    // join this connection; fd: proof
	MESSAGE_ATTACH_OK = 3, // done; fd: proof
	MESSAGE_ATTACH_NO = 4, // not done
};
// What HELLO says of its sender.
enum message_feature {
	FEATURE_BUFFER = 1, // it takes adverts of registered buffers
	FEATURE_DATE = 2,   // it takes slots that say when they were posted
};
struct message {
	uint32_t kind;
	uint32_t version;
	uint32_t lane, generation;
	uint32_t reason;
	uint32_t lanes, slots, window; // HELLO: geometry of the sender's file; and windows
	uint64_t size;
	uint64_t ino, peer_ino; // the sender's socket, the receiver's socket
	struct tuple tuple;     // as the sender sees it
	char name[64];          // HELLO: the sender's listener
	uint32_t windows;
	uint32_t features; // HELLO
	uint8_t pad[256 - 4 * 8 - 3 * 8 - sizeof(struct tuple) - 64 - 8];
};

// The offsets that ext-ds.md gives.
_Static_assert(offsetof(struct message, kind) == 0, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, version) == 4, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, lane) == 8, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, generation) == 12, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, reason) == 16, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, lanes) == 20, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, slots) == 24, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, window) == 28, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, size) == 32, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, ino) == 40, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, peer_ino) == 48, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, tuple.local) == 56, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, tuple.remote) == 72, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, tuple.local_port) == 88, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, tuple.remote_port) == 90, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, tuple.v6) == 92, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, name) == 96, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, windows) == 160, "ext-ds.md, control messages");
_Static_assert(offsetof(struct message, features) == 164, "ext-ds.md, control messages");
_Static_assert(sizeof(struct message) == CHANNEL_MESSAGE, "ext-ds.md, control messages");

// channel_open makes a channel on a connected control socket (which it takes)
// and sends HELLO. NULL with *why when it cannot.
struct channel *channel_open(int ctl, bool inviter, enum reason *why);

// channel_to is a channel to the process of that listener which is not full, made if
// need be. NULL with *why when there is none.
struct channel *channel_to(const char *name, enum reason *why);

// channel_send posts a message, with n descriptors. It never blocks.
bool channel_send(struct channel *ch, const struct message *m, const int *fds, int n);

// channel_pending: messages wait. Costs no system call.
bool channel_pending(struct channel *ch);

// channel_receive handles what waits and calls f for all but HELLO; the descriptors
// are f's only during the call. It may mark the channel dead.
void channel_receive(struct channel *ch, void (*f)(struct channel *ch, const struct message *m, const int *fds, int n));

// channel_kick interrupts whatever the peer process does, so that it heeds us
// (conn_heed) although it makes none of our calls. Best effort.
void channel_kick(struct channel *ch);

// channel_rung counts a ring of ours. Who rings without end and brings nothing only
// costs us time: the channel ends.
void channel_rung(struct channel *ch);

// channel_brought: bytes or room came by a lane, or we rang ourselves.
static inline void channel_brought(struct channel *ch)
{
	if (atomic_load_explicit(&ch->rings, memory_order_relaxed))
		atomic_store_explicit(&ch->rings, 0, memory_order_relaxed);
}

void channel_kill(struct channel *ch, enum reason why);
void channel_kill_all(enum reason why); // those of this process

// channel_free gives back everything of a dead channel of this process that no
// connection has a lane on.
void channel_free(struct channel *ch);

// channel_unmap unmaps a memory file of ours that no channel needs any more, and its head with it
// unless a thread may be about to arm a doorbell there; then that is ordinary memory for a while.
void channel_unmap(uint8_t *base, uint64_t size);

// channel_spare lets go, in a child that was just forked, of channels that none of
// its connections uses.
void channel_spare(void);

// channel_look kills the channels of this process whose peer has gone, unnoticed
// because nobody sleeps on them.
void channel_look(void);
bool channel_hung_up(const struct channel *ch);

// channel_pick takes a lane for a connection of ours; -1 when none is left.
int channel_pick(struct channel *ch, uint32_t *generation);
void channel_unpick(struct channel *ch, uint32_t lane);

// channel_ran says where this process runs; channel_near: the peer last ran on
// the same CPU, so spinning would only keep it from running.
void channel_ran(struct channel *ch);
bool channel_near(const struct channel *ch);

#endif
