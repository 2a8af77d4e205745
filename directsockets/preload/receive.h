// SPDX-License-Identifier: Apache-2.0
//
// The inbound direction of an engaged connection. All with rx_lock held but rx_rest.
#ifndef RECEIVE_H
#define RECEIVE_H

#include <sys/types.h>

#include "family.h"

// rx_turn takes control messages and changes the mode when the stream is there.
void rx_turn(struct conn *c, int fd);

// rx_take moves what is there: >0 bytes, 0 end of stream, -errno.
ssize_t rx_take(struct conn *c, int fd, struct cursor *cur, int flags);

// rx_rest ends a call that has begun on the lane, which the connection has left for
// good: it reads from TCP and may sleep there. Without the lock.
size_t rx_rest(struct conn *c, int fd, struct cursor *cur, int flags);

// rx_marked: urgent data comes next, where a call ends that has got something. Needs no lock.
bool rx_marked(const struct conn *c, int fd);

// rx_ready is EPOLLIN and EPOLLRDHUP.
uint32_t rx_ready(struct conn *c, int fd);

// rx_plain: EPOLLIN, and no other event of reading, now. Needs no lock: what it reads may
// be changing only while another thread reads, which may have come first then.
HINT bool rx_plain(struct conn *c);

// rx_probe asks the kernel whether an end, a reset or stray bytes came. True:
// something did, look again.
bool rx_probe(struct conn *c, int fd);

// rx_freeze stops reading from the lane and asks the peer to send the rest by TCP.
// It is over when rx_frozen is false; then rx_mode tells whether it worked.
void rx_freeze(struct conn *c, int fd);

// rx_consent lets the peer write by the lane, for the first time or after rx_freeze; then
// rx_quiet has to be true: by TCP, and nothing is on the lane.
bool rx_quiet(struct conn *c, int fd);
void rx_consent(struct conn *c, int fd);

// rx_goes_on: as far as is known the peer has not ended, nor sent urgent data, at which reads end.
bool rx_goes_on(const struct conn *c, int fd);

// rx_tell notes that the program is told of bytes on the lane. Needs no lock.
static inline void rx_tell(struct conn *c)
{
	if (!atomic_load_explicit(&c->rx_told, memory_order_relaxed))
		atomic_store_explicit(&c->rx_told, true, memory_order_relaxed);
}

// rx_waits: is there something that rx_turn or rx_take has not seen? Needs no lock.
HINT static inline bool rx_waits(const struct conn *c)
{
	if (__builtin_expect(c->rx_frozen, 0)) {
		struct lane_rx copy = c->rx;
		return lane_skip(&copy) != LOOK_NONE;
	}
	return c->rx.piece_left || c->rx.off || (c->rx.advert.left && !c->rx.advert.stuck && !c->rx.advert.over) || lane_valid(&c->rx, c->rx.slot);
}

#endif
