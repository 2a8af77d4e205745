// SPDX-License-Identifier: Apache-2.0
//
// Byte stream calls on an engaged connection.
#ifndef STREAM_H
#define STREAM_H

#include <sys/types.h>
#include <sys/uio.h>

#include "family.h"

// What a call returns when the connection is not engaged (any more).
#define STREAM_NATIVE ((ssize_t)-2)

// stream_lock: the lock, one of the connection's two, is held. A family member that died inside
// leaves the connection in an unknown state: it is reset.
bool stream_lock(struct conn *c, int fd, struct lock *l);

// As recvmsg and sendmsg would: -1 and errno.
ssize_t stream_recv(struct conn *c, int fd, const struct iovec *iov, int n, int flags);
ssize_t stream_send(struct conn *c, int fd, const struct iovec *iov, int n, int flags);

ssize_t stream_sendfile(struct conn *c, int fd, int in, off_t *offset, size_t count);

// stream_ready is the level poll(2) would give, of the events wanted
// (EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLLPRI) and EPOLLERR, EPOLLHUP.
uint32_t stream_ready(struct conn *c, int fd, uint32_t want);

// stream_glance is a cheap hint without locks: worth calling stream_ready?
bool stream_glance(struct conn *c, uint32_t want);

// stream_probe asks the kernel about an end.
void stream_probe(struct conn *c, int fd);

// stream_asks: it is some time since the kernel was asked about an end, or the peer has closed.
bool stream_asks(struct conn *c);

// stream_asked: at clock_ticks the kernel knew of no end that rx_hint does not say.
void stream_asked(struct conn *c, uint64_t ticks);

// stream_told: a poll or an epoll set told the program of bytes at clock_ticks. The next one will
// tell of an end as well, so who reads until there is nothing need not ask for one each time.
void stream_told(struct conn *c, uint64_t ticks);

// stream_room is a hint, likewise, for the writing side: a write takes something.
bool stream_room(struct conn *c);

// stream_heed returns our direction to TCP if the peer asks for it; called before
// each sleep. stream_heeds: there is something to do.
void stream_heed(struct conn *c, int fd);
bool stream_heeds(struct conn *c);

int stream_shutdown(struct conn *c, int fd, int how);
void stream_close(struct conn *c, int fd); // last reference
int stream_unread(struct conn *c, int fd);  // FIONREAD

// stream_halt is the first step of stream_back: nothing more is taken from the lane.
void stream_halt(struct conn *c, int fd);

// stream_back returns both directions to TCP for good: false if the peer does not
// answer within 1 s, or if bytes are left on the lane that cannot come by TCP.
enum { LEAVE_MS = 1000 }; // that it may take
bool stream_back(struct conn *c, int fd);
bool stream_is_back(struct conn *c, int fd); // is it by now? Without waiting
bool stream_leave_tx(struct conn *c, int fd); // what we write only

#endif
