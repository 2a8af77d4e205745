// SPDX-License-Identifier: Apache-2.0
//
// What an io_uring of the process does to its lanes.
#ifndef URING_H
#define URING_H

#include <stdbool.h>

struct io_uring_params;

// uring_leave takes all connections of this process back to TCP, for good: a ring that we
// do not see into may use them.
void uring_leave(void);

// uring_for_epoll: a ring with these parameters is libuv's for its epoll sets, since the
// caller is libuv. That may be part of the program, or of what was loaded by dlopen for itself.
bool uring_for_epoll(const struct io_uring_params *p, const void *caller);

#endif
