// SPDX-License-Identifier: Apache-2.0
//
// The outbound direction of an engaged connection. All with tx_lock held but tx_rest.
#ifndef TRANSMIT_H
#define TRANSMIT_H

#include <sys/types.h>

#include "family.h"
#include "zcopy.h"

// tx_turn decides where the next byte goes: it switches to the lane, or back to
// TCP, and moves on what the peer handed back.
void tx_turn(struct conn *c, int fd);

// tx_rest ends a call that has begun on the lane, which the connection has left for
// good: it writes to TCP and may sleep there. Without the lock.
size_t tx_rest(struct conn *c, int fd, struct cursor *cur, int flags);

// tx_put moves what there is room for: >0 bytes or -errno. It raises no SIGPIPE.
// A blocking call has an advert, which it makes and follows here.
ssize_t tx_put(struct conn *c, int fd, struct cursor *cur, int flags, struct zcopy *z);

// tx_file does so from a file, m its map or NULL: >0 bytes, 0 at its end, -errno.
struct filemap;
ssize_t tx_file(struct conn *c, int fd, struct filemap *m, int in, off_t at, size_t count);

// tx_asked notes that the program has asked for room when there was none. As after a write
// that found none, edge-triggered sets are told of the next.
void tx_asked(struct conn *c);

// tx_patience is for how many nanoseconds who waits for room may sleep; 0: ask tx_ready now, a write
// may go by TCP. ~0: until there is room.
HINT uint64_t tx_patience(const struct conn *c);

// tx_ready is EPOLLOUT or 0.
uint32_t tx_ready(struct conn *c, int fd);

// tx_room: EPOLLOUT now, in LANE mode. A hint, without locks.
HINT bool tx_room(struct conn *c);

// tx_barred: it writes by TCP, whatever the peer wants.
static inline bool tx_barred(const struct conn *c) { return c->tx_off || c->tx_back; }

// tx_plain: EPOLLOUT now, by the lane. Needs no lock; another thread may be writing.
HINT bool tx_plain(struct conn *c);

// tx_finish ends this direction, before the system call that does.
void tx_finish(struct conn *c, int fd, enum lane_how how);

// tx_unread: the peer has not taken all that is on the lane. For a peer that is
// gone. The caller may hold the reader's lock.
bool tx_unread(struct conn *c);

#endif
