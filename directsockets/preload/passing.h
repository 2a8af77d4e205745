// SPDX-License-Identifier: Apache-2.0
//
// Connections that go from one process to another in a message (SCM_RIGHTS).
#ifndef PASSING_H
#define PASSING_H

#include <stdbool.h>
#include <sys/socket.h>

#include "family.h"

// passing_begin is called before a message of the program's is sent, passing_end after: was it?
void passing_begin(const struct msghdr *h);
void passing_end(const struct msghdr *h, bool sent);

// passing_came is called after one has been received.
void passing_came(struct msghdr *h, int flags);

// passing_ours: no other program holds it, as far as passing is concerned.
bool passing_ours(struct conn *c, int fd);

// passing_spoilt: somebody else may have passed it on.
bool passing_spoilt(int fd);

// passing_closed is told that the last descriptor in this family is about to be closed, and
// which state the connection had.
void passing_closed(struct conn *c, int fd, uint32_t was);

static inline bool passing_some(const struct msghdr *h) { return h && h->msg_control && h->msg_controllen; }

#endif
