// SPDX-License-Identifier: Apache-2.0
//
// Calls that move bytes by an io_uring of the process, and what they are made of.
#ifndef RING_H
#define RING_H

#include "calls.h"

void c_ring(struct call *c); // ring [own]: makes it; own: by system call instructions of ours
void c_rsend(struct call *c); // rsend H N: IORING_OP_SEND
void c_rrecv(struct call *c); // rrecv H N: IORING_OP_RECV
void c_rpoll(struct call *c); // rpoll H: IORING_OP_POLL_ADD, for reading

// instruction is syscall(2) that no library can take the place of; it gives -errno.
long instruction(long n, long a, long b, long c, long d);

#endif
