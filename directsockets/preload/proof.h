// SPDX-License-Identifier: Apache-2.0
//
// Proof that a peer process owns the other end of a TCP connection.
#ifndef PROOF_H
#define PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

// What one end hands the other.
struct proof {
	int socket; // an O_PATH descriptor of it
	int diag;   // a sock_diag socket of its network namespace, where that is another; or -1
};

// proof_make shows that we hold fd, without giving the peer a way to read, write
// or keep it open; to a peer abroad, in which namespace that is. False: it cannot.
bool proof_make(int fd, bool abroad, struct proof *p);
void proof_drop(struct proof *p);

// proof_check: does the TCP socket at the other end of c have this inode and belong to this uid, and does what was
// handed show it? REASON_NONE if so; if nobody holds it any more, PEER_GONE; if it is, just now, not to be told from an
// end of another connection, NO_PEER.
enum reason proof_check(const struct conn *c, uint64_t ino, uint32_t uid, const struct proof *handed);

// proof_far asks the kernel for the socket with the ends of the other one, in the network namespace of that cookie.
bool proof_far(const struct tuple *other, uint64_t here, uint64_t *ino, uint32_t *uid);

// proof_other: the kernel knows the other end of c, in our network namespace, as a socket with this inode and of this uid.
bool proof_other(const struct conn *c, uint64_t ino, uint32_t uid);

// proof_elsewhere: in the network namespace of our end no socket is the other one.
bool proof_elsewhere(const struct tuple *other, uint64_t here);

// proof_forget drops what the process keeps for it (after fork).
void proof_forget(void);

#endif
