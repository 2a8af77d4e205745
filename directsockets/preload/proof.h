// SPDX-License-Identifier: Apache-2.0
//
// Proof that a peer process owns the other end of a TCP connection.
#ifndef PROOF_H
#define PROOF_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

// proof_make returns a descriptor to hand to the peer, or -1. It shows that we
// hold fd without giving the peer a way to read, write or keep it open.
int proof_make(int fd);

// proof_check: does the TCP socket at the other end of the tuple have this
// inode and belong to this uid, and does the handed descriptor show it?
bool proof_check(const struct tuple *t, uint64_t ino, uint32_t uid, int handed);

// proof_forget drops what the process keeps for it (after fork).
void proof_forget(void);

#endif
