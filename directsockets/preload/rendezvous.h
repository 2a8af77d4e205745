// SPDX-License-Identifier: Apache-2.0
//
// How the two ends of a connection find each other without a daemon.
#ifndef RENDEZVOUS_H
#define RENDEZVOUS_H

#include <stddef.h>
#include <stdatomic.h>

#include "family.h"

// Connections of this process that wait for a peer, and dead channels to be freed.
// While it is 0 nothing of this file needs to be called.
extern _Atomic int rendezvous_waiting;

// rendezvous_possible: can this process find peers at all?
bool rendezvous_possible(void);

// rendezvous_step moves a connection at or above the threshold towards
// CONN_ATTACHED. It never blocks; calls of it cost nothing before c->due.
void rendezvous_step(struct conn *c, int fd);

// rendezvous_progress takes what peers have sent.
void rendezvous_progress(void);

// rendezvous_stay keeps a connection that is not engaged on TCP for good.
void rendezvous_stay(struct conn *c, int fd, enum reason why);

// rendezvous_closed is told that a connection was in a state when it closed.
void rendezvous_closed(struct conn *c, uint32_t was);

// rendezvous_release is told that this process lets go of a connection that
// another one of the family keeps, which may then look for the peer itself.
void rendezvous_release(struct conn *c);

// rendezvous_hold: until rendezvous_unhold no connection of this process comes nearer to a lane,
// and none is moved to the one it has. Meanwhile rendezvous_drop is rendezvous_release, and
// rendezvous_forget gives up directory, listener and dead channels. False, for rendezvous_unhold:
// the lock was not to be had for a second, so who has it will not go on.
bool rendezvous_hold(void);
void rendezvous_drop(struct conn *c);
void rendezvous_forget(void);
void rendezvous_unhold(bool got);
extern _Atomic int rendezvous_held;

// rendezvous_sweep_due says that a dead channel has lost its last lane;
// rendezvous_sweep frees such channels, as does rendezvous_progress. No lock is held.
void rendezvous_sweep_due(void);
void rendezvous_sweep(void);

// rendezvous_retire takes back what others find this process by: before exec and
// at exit. The next connection makes it anew.
void rendezvous_retire(void);

void rendezvous_child(void); // after fork

#endif
