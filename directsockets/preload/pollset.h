// SPDX-License-Identifier: Apache-2.0
//
// poll(2) and select(2) over descriptors some of which may be engaged.
#ifndef POLLSET_H
#define POLLSET_H

#include <poll.h>
#include <signal.h>
#include <stdint.h>

// As ppoll; timeout in ns, negative for none.
int pollset_wait(struct pollfd *fds, nfds_t n, int64_t timeout, const sigset_t *mask);

#endif
