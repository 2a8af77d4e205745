// SPDX-License-Identifier: Apache-2.0
//
// TCP that holds little, so that what goes back to it is long on its way.
#ifndef NARROW_H
#define NARROW_H

#include <errno.h>
#include <stdbool.h>
#include <sys/socket.h>

// narrow gives a socket buffers of `least` bytes.
static bool narrow(int fd, int least)
{
	return setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) == 0 && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &least, sizeof least) == 0;
}

// stingy is the setsockopt of a system that lets nobody have a larger buffer.
static int stingy(int fd, int level, int option, const void *value, socklen_t n)
{
	(void)fd, (void)level, (void)option, (void)value, (void)n;
	errno = EPERM;
	return -1;
}

#endif
