// SPDX-License-Identifier: Apache-2.0
//
// Doorbells: saying that one sleeps, and waking who does.
#ifndef DOORBELL_H
#define DOORBELL_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

// doorbell_make makes a doorbell of ours, kept; -1 without a descriptor left.
int doorbell_make(void);

// doorbell_legal tells whether a descriptor that a peer sent is an eventfd: to
// ring anything else could block or deliver bytes.
bool doorbell_legal(int fd);

// doorbell_claim gives a waiter of the channel, one that nobody else uses while
// there are such, else one to be shared. It cannot fail.
int doorbell_claim(struct channel *ch);

// doorbell_touch begins to arm and disarm waiters of channels that may end meanwhile; who says
// which stripe to count in. The caller then asks for the serial number of each, and touches the
// memory of no other. doorbell_touched ends that.
_Atomic uint32_t *doorbell_touch(const void *who);
void doorbell_touched(_Atomic uint32_t *stripe);
// doorbell_untouched: nobody is at it who may have found a number that is not there any more.
bool doorbell_untouched(void);
void doorbell_child(void); // in a forked child, where nobody is

// doorbell_watch asks the peer to ring waiter w; mask is a word of our control
// block. doorbell_unwatch ends that, unless others use the waiter.
void doorbell_watch(_Atomic uint64_t *mask, int w);
void doorbell_unwatch(struct channel *ch, _Atomic uint64_t *mask, int w);

// doorbell_arm says that a user of waiter w is about to sleep. The caller must
// look again after it and before it sleeps. Who armed before may be rung anew.
void doorbell_arm(struct lane_head *own, int w);
// doorbell_disarm: this user is awake. Others may go on sleeping.
void doorbell_disarm(struct channel *ch, struct lane_head *own, int w);
// doorbell_release: it has the waiter no more.
void doorbell_release(struct channel *ch, struct lane_head *own, int w);

// doorbell_ring is called after something was posted, or credit given, on the lane of
// c: it makes the mark that mask, a word of the peer's, asks for, and wakes the waiters
// of the peer that it names, if they sleep.
void doorbell_ring(struct conn *c, const _Atomic uint64_t *mask);

// doorbell_room is doorbell_ring for who waits for room, after credit was given for bytes: it does
// nothing while that is less than they need.
void doorbell_room(struct conn *c);

// doorbell_rouse wakes those of our own side who sleep for bytes of c, and perhaps for room: there
// is none now, which they may not have asked the peer about. After that was counted. With all
// also those who sleep for room alone.
void doorbell_rouse(struct conn *c, bool all);

// doorbell_wake wakes all who sleep on a waiter of our own side.
void doorbell_wake(struct channel *ch, int w);

#endif
