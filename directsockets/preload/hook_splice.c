// SPDX-License-Identifier: Apache-2.0
//
// Exported: splice. On TCP the kernel does it, and we count. On a lane the bytes
// are copied between lane and pipe, such that neither side gives what the other has
// no room for:
//
//	out of a lane  room in the pipe is certain first, then the lane is read
//	into a lane    tee(2) shows what the pipe holds, and what the lane took of it
//	               is then read from the pipe
//
// As in the kernel, who else writes to or reads from the same end of the same pipe
// meanwhile takes his chances.
#include "hook.h"

#include <limits.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "conn.h"
#include "files.h"
#include "stream.h"

enum { PIECE = 64 << 10 }; // what a pipe holds, and the kernel moves at once

static bool is_pipe(int fd)
{
	struct stat st;
	return real_fstat(fd, &st) == 0 && S_ISFIFO(st.st_mode);
}

static bool waits(int pipe, unsigned flags)
{
	return !(flags & SPLICE_F_NONBLOCK) && !(real.fcntl(pipe, F_GETFL) & O_NONBLOCK);
}

// pipe_room waits until the pipe can take something, and says how much for certain: an
// empty one all, another that is writable one page. -1 and errno if it takes nothing.
static ssize_t pipe_room(int pipe, unsigned flags)
{
	struct pollfd p = {pipe, POLLOUT, 0};
	int n = real.poll(&p, 1, waits(pipe, flags) ? -1 : 0), held = 0;
	if (n < 0)
		return -1;
	if (n == 0) {
		errno = EAGAIN;
		return -1;
	}
	int size = real.fcntl(pipe, F_GETPIPE_SZ);
	return real.ioctl(pipe, FIONREAD, &held) == 0 && held == 0 && size > 0 ? size : PIPE_BUF;
}

// pour writes all of it: there was room.
static void pour(int pipe, const char *bytes, size_t n)
{
	while (n > 0) {
		ssize_t r = real.write(pipe, bytes, n);
		if (r < 0 && errno != EAGAIN && errno != EINTR)
			return; // nobody reads the pipe any more
		if (r < 0) {
			struct pollfd p = {pipe, POLLOUT, 0};
			real.poll(&p, 1, -1);
			continue;
		}
		bytes += r;
		n -= (size_t)r;
	}
}

// STREAM_NATIVE: the connection is not on a lane any more.
static ssize_t out_of_lane(struct conn *c, int fd, int pipe, size_t n, unsigned flags, char *bytes)
{
	ssize_t room = pipe_room(pipe, flags);
	if (room < 0)
		return -1;
	n = n < PIECE ? n : PIECE;
	struct iovec iov = {bytes, n < (size_t)room ? n : (size_t)room};
	int now = c->rcvlowat > 1 ? MSG_DONTWAIT : 0; // what is here comes, and only who waits waits for that much
	ssize_t r = stream_recv(c, fd, &iov, 1, now);
	if (now && r == -1 && errno == EAGAIN)
		r = stream_recv(c, fd, &iov, 1, 0);
	if (r > 0)
		pour(pipe, bytes, (size_t)r);
	return r;
}

// peek_pipe copies what a pipe holds, after waiting for something: 0 at its end.
static ssize_t peek_pipe(int pipe, size_t n, unsigned flags, char *bytes)
{
	int copy[2];
	if (pipe2(copy, O_CLOEXEC) < 0) {
		errno = ENOMEM; // splice knows no lack of descriptors
		return -1;
	}
	ssize_t r = tee(pipe, copy[1], n < PIECE ? n : PIECE, flags & SPLICE_F_NONBLOCK);
	if (r > 0)
		r = real.read(copy[0], bytes, (size_t)r);
	int saved = errno;
	real.close(copy[0]);
	real.close(copy[1]);
	errno = saved;
	return r;
}

static ssize_t into_lane(struct conn *c, int fd, int pipe, size_t n, unsigned flags, char *bytes)
{
	ssize_t r = peek_pipe(pipe, n, flags, bytes);
	if (r <= 0)
		return r;
	struct iovec iov = {bytes, (size_t)r};
	r = stream_send(c, fd, &iov, 1, 0);
	if (r > 0 && real.read(pipe, bytes, (size_t)r) != r)
		r = -1;
	return r;
}

// by_lane: false, it is the kernel's.
static bool by_lane(struct conn *c, int fd, int pipe, size_t n, unsigned flags, bool in, ssize_t *r)
{
	char *bytes = NULL;
	bool lane;
	int saved = errno;
	while ((lane = conn_enter(c, fd))) {
		if (!bytes && !(bytes = malloc(PIECE))) {
			errno = ENOMEM;
			*r = -1;
			break;
		}
		*r = in ? out_of_lane(c, fd, pipe, n, flags, bytes) : into_lane(c, fd, pipe, n, flags, bytes);
		if (*r != STREAM_NATIVE)
			break;
	}
	free(bytes);
	if (!lane || *r >= 0)
		errno = saved;
	return lane;
}

EXPORT ssize_t splice(int in, off_t *in_off, int out, off_t *out_off, size_t n, unsigned flags)
{
	HOOK();
	struct conn *from = conn_get(in), *to = from ? NULL : conn_get(out), *c = from ? from : to;
	const unsigned known = SPLICE_F_MOVE | SPLICE_F_NONBLOCK | SPLICE_F_MORE | SPLICE_F_GIFT;
	int fd = from ? in : out, pipe = from ? out : in;
	ssize_t r;
	if (!c)
		return real.splice(in, in_off, out, out_off, n, flags);
	// What the kernel refuses moves no bytes.
	if (n == 0 || flags & ~known || in_off || out_off || !is_pipe(pipe)) {
		r = real.splice(in, in_off, out, out_off, n, flags);
	} else if (!by_lane(c, fd, pipe, n, flags, from, &r)) {
		r = real.splice(in, NULL, out, NULL, n, flags);
		if (r > 0)
			atomic_fetch_add(from ? &c->tcp_rx : &c->tcp_tx, (uint64_t)r);
	}
	conn_put(c); // errno stays
	return r;
}
