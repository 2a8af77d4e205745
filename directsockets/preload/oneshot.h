// SPDX-License-Identifier: Apache-2.0
//
// One-shot members of an epoll set that are on TCP: has one fired?
#ifndef ONESHOT_H
#define ONESHOT_H

#include <stdbool.h>

#include "member.h"

// oneshot_enter and oneshot_leave are around each call that takes events out of the
// program's set in the kernel. False: this thread is engaging a connection of the set
// (a signal handler inside a call).
bool oneshot_enter(struct epset *e);
void oneshot_leave(struct epset *e);

// oneshot_held waits a moment if those that go into the set are being held up until
// nobody is inside; false: they are not.
bool oneshot_held(struct epset *e);

// oneshot_own makes a one-shot member ours, as armed or as fired, while its connection is
// being engaged; with the lock. False: not now, or never if *why is set. From the first
// on nobody takes events out of the set, until oneshot_open.
bool oneshot_own(struct epset *e, struct member *m, enum reason *why);
void oneshot_open(struct epset *e);

#endif
