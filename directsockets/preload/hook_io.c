// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that move bytes. Each one counts what it moved over TCP, so
// that both ends know the offset at which a direction switches.
#include "hook.h"

#include <errno.h>
#include <limits.h>
#include <linux/sockios.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <netinet/in.h>

#include "clock.h"
#include "config.h"
#include "conn.h"
#include "files.h"
#include "passing.h"
#include "sleep.h"
#include "stream.h"

// lane_recv and lane_send run a call on the lane. False: it must go to the
// kernel. A lane call may find that the connection has left the lane meanwhile;
// then it enters again. errno is what it was unless the call fails: programs look at
// it after calls that did not (nuttcp).
static bool lane_recv(struct conn *c, int fd, const struct iovec *iov, int n, int flags, ssize_t *r)
{
	if (conn_below(c))
		return false;
	int saved = errno;
	while (conn_enter(c, fd)) {
		*r = stream_recv(c, fd, iov, n, flags);
		if (*r >= 0)
			errno = saved;
		if (*r != STREAM_NATIVE)
			return true;
		if (flags & (MSG_OOB | MSG_ERRQUEUE))
			break;
	}
	errno = saved;
	return false;
}

static bool lane_send(struct conn *c, int fd, const struct iovec *iov, int n, int flags, ssize_t *r)
{
	if (!(flags & (MSG_ZEROCOPY | MSG_OOB | MSG_FASTOPEN)) && conn_below(c))
		return false;
	int saved = errno;
	if (flags & MSG_ZEROCOPY) // the kernel tells by the error queue what it is done with
		conn_stay(c, fd, REASON_OPTION);
	while (conn_enter(c, fd)) {
		*r = stream_send(c, fd, iov, n, flags);
		if (*r >= 0)
			errno = saved;
		if (*r != STREAM_NATIVE)
			return true;
	}
	errno = saved;
	if (flags & (MSG_OOB | MSG_FASTOPEN))
		c->tx_off = true;
	return false;
}

static ssize_t done(struct conn *c, ssize_t r)
{
	conn_put(c); // errno stays
	return r;
}

static ssize_t received(struct conn *c, ssize_t r, int flags)
{
	if (c->nonblock && !c->watched && !(flags & (MSG_OOB | MSG_ERRQUEUE)))
		conn_asked(c, r < 0 && errno == EAGAIN);
	if (r > 0 && !(flags & (MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)))
		single_add64(&c->tcp_rx, (uint64_t)r, conn_sole(c));
	return done(c, r);
}

static ssize_t sent(struct conn *c, ssize_t r)
{
	if (r > 0)
		single_add64(&c->tcp_tx, (uint64_t)r, conn_sole(c));
	return done(c, r);
}

// out and in are single parts of a call that goes on. Of messages less is not short, nor before an urgent byte.
static ssize_t out(int fd, void *from, size_t n, int flags)
{
	struct conn *c = conn_get(fd);
	struct iovec iov = {from, n};
	ssize_t r;
	flags &= ~(MSG_ZEROCOPY | MSG_FASTOPEN); // of which the program counts one
	if (c && lane_send(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	r = UNKICKED(fd, POLLOUT, flags ? real.send(fd, from, n, flags) : real.write(fd, from, n));
	return c ? sent(c, r) : r;
}

static ssize_t in(int fd, void *to, size_t n, int flags)
{
	int type = 0, urgent = 0;
	socklen_t len = sizeof type;
	if (real.getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) < 0 || type != SOCK_STREAM || (real.ioctl(fd, SIOCATMARK, &urgent) == 0 && urgent))
		return 0;
	struct conn *c = conn_get(fd);
	struct iovec iov = {to, n};
	ssize_t r;
	if (c && lane_recv(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	r = UNKICKED(fd, POLLIN, real.recv(fd, to, n, flags));
	return c ? received(c, r, flags) : r;
}

// failed: an error waits to be told. What MSG_ZEROCOPY has to tell looks like one, but leaves the connection open.
static bool failed(int fd, int ready)
{
	int zerocopy = 0;
	socklen_t n = sizeof zerocopy;
	return ready & POLLERR && (ready & POLLHUP || real.getsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &zerocopy, &n) < 0 || !zerocopy);
}

// goes_on waits until a call that a kick has cut short can move more. An error is left for the next one.
static bool goes_on(uint64_t *until, int fd, short events, int flags)
{
	if (flags & (MSG_DONTWAIT | MSG_OOB) || real.fcntl(fd, F_GETFL) & O_NONBLOCK)
		return false;
	int ready = sleep_ready(until, fd, events);
	return ready && !failed(fd, ready);
}

// rest goes on with a call that a kick alone has cut short: the kernel gives what had been moved up
// to then. Where it ends for another reason, that is told by the next call.
static ssize_t rest(ssize_t did, ssize_t (*move)(int, void *, size_t, int), int fd, const struct iovec *iov, size_t n, int flags)
{
	size_t skip = (size_t)did;
	uint64_t until = 0;
	int saved = errno;
	for (bool on = true; on && n > 0; iov++, n--) {
		while (on && skip < iov->iov_len) {
			struct sleep_since since = sleep_now();
			size_t left = iov->iov_len - skip;
			ssize_t r = goes_on(&until, fd, move == in ? POLLIN : POLLOUT, flags) ? move(fd, (char *)iov->iov_base + skip, left, flags) : 0;
			on = r == (ssize_t)left || (r > 0 && sleep_kicked(since));
			did += r > 0 ? r : 0;
			skip += r > 0 ? (size_t)r : 0;
		}
		skip -= on ? iov->iov_len : 0;
	}
	errno = saved;
	return did;
}

#define WHOLE(call, move, fd, iov, n, flags) \
	({ \
		struct sleep_since all_ = sleep_now(); \
		ssize_t did_ = (call); \
		did_ > 0 && sleep_kicked(all_) ? rest(did_, move, fd, iov, n, flags) : did_; \
	})

// PARTS is what a call of n bytes or messages gives that goes on behind the `did` first ones where a kick has cut it short.
#define PARTS(fd, events, flags, n, did, call) \
	({ \
		struct sleep_since part_; \
		uint64_t time_ = 0; \
		size_t did = 0; \
		int saved_ = errno; \
		ssize_t r_; \
		do { \
			part_ = sleep_now(); \
			r_ = UNKICKED(fd, events, call); \
			did += r_ > 0 ? (size_t)r_ : 0; \
		} while (r_ > 0 && did < (n) && sleep_kicked(part_) && goes_on(&time_, fd, events, flags)); \
		if (did > 0) \
			errno = saved_; \
		did > 0 ? (ssize_t)did : r_; \
	})

// WAITS: without MSG_WAITALL less is not short.
#define WAITS(flags) (((flags) & (MSG_WAITALL | MSG_PEEK | MSG_ERRQUEUE)) == MSG_WAITALL ? (flags) : MSG_DONTWAIT)

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return UNKICKED(fd, POLLIN, real.read(fd, buf, n));
	if (n == 0)
		return done(c, 0); // read(2) says so before it asks TCP
	if (lane_recv(c, fd, &iov, 1, 0, &r))
		return done(c, r);
	return received(c, UNKICKED(fd, POLLIN, real.read(fd, buf, n)), 0);
}
ALSO(__read, read);

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLIN, real.recv(fd, buf, n, flags)), in, fd, &iov, 1, WAITS(flags));
	if (lane_recv(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(received(c, UNKICKED(fd, POLLIN, real.recv(fd, buf, n, flags)), flags), in, fd, &iov, 1, WAITS(flags));
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *a, socklen_t *alen)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLIN, real.recvfrom(fd, buf, n, flags, a, alen)), in, fd, &iov, 1, WAITS(flags));
	if (lane_recv(c, fd, &iov, 1, flags, &r)) {
		if (r >= 0 && a && alen)
			*alen = 0; // as TCP does
		return done(c, r);
	}
	return WHOLE(received(c, UNKICKED(fd, POLLIN, real.recvfrom(fd, buf, n, flags, a, alen)), flags), in, fd, &iov, 1, WAITS(flags));
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	ssize_t r;
	if (!c)
		return UNKICKED(fd, POLLIN, real.readv(fd, iov, n));
	if (n >= 0 && n <= IOV_MAX && lane_recv(c, fd, iov, n, 0, &r))
		return done(c, r);
	if (n < 0 || n > IOV_MAX) {
		errno = EINVAL;
		return done(c, -1);
	}
	return received(c, UNKICKED(fd, POLLIN, real.readv(fd, iov, n)), 0);
}

// tell_left writes the message that TCP_INQ asks for, as the kernel does: how much is left to
// read, the end being one more, so that programs read until they have it. So is a reset here; the
// kernel says 0 if that is all.
static void tell_left(struct conn *c, int fd, struct msghdr *h)
{
	enum { INQ = 36 };
	int saved = errno;
	int left = stream_unread(c, fd);
	if (!left && c->rx_hint)
		stream_probe(c, fd);
	left += c->dead || c->rx_fin || c->rx_eof || (c->peer && atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->shut));
	errno = saved;
	union { struct cmsghdr head; char space[CMSG_SPACE(sizeof left)]; } m = {.head = {CMSG_LEN(sizeof left), IPPROTO_TCP, INQ}};
	memcpy(CMSG_DATA(&m.head), &left, sizeof left);
	size_t room = h->msg_control ? real_size(h->msg_controllen) : 0;
	if (room < m.head.cmsg_len) {
		m.head.cmsg_len = room < sizeof m.head ? 0 : room;
		h->msg_flags |= MSG_CTRUNC;
	}
	memcpy(h->msg_control ? h->msg_control : &m, &m, m.head.cmsg_len);
	h->msg_controllen = room < sizeof m.head ? 0 : room < sizeof m ? room : sizeof m;
}

// stamped takes a connection back to TCP if here is room for the times at which bytes came, which
// only the kernel has. Where that cannot be done, no more are told.
static void stamped(struct conn *c, int fd, const struct msghdr *h)
{
	int saved = errno;
	if (h->msg_control && real_size(h->msg_controllen))
		c->stamps = conn_try_stay(c, fd, REASON_OPTION);
	errno = saved;
}

EXPORT ssize_t recvmsg(int fd, struct msghdr *h, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	ssize_t r;
	if (!c) {
		r = WHOLE(UNKICKED(fd, POLLIN, real.recvmsg(fd, h, flags)), in, fd, h->msg_iov, real_size(h->msg_iovlen), h->msg_control ? MSG_DONTWAIT : WAITS(flags));
		if (r >= 0 && passing_some(h))
			passing_came(h, flags);
		return r;
	}
	if (real_size(h->msg_iovlen) > IOV_MAX) {
		errno = EMSGSIZE;
		return done(c, -1);
	}
	if (c->stamps)
		stamped(c, fd, h);
	if (lane_recv(c, fd, h->msg_iov, (int)h->msg_iovlen, flags, &r)) {
		if (r >= 0) {
			h->msg_namelen = 0;
			h->msg_flags = c->stamps && r > 0 ? MSG_CTRUNC : 0;
			if (c->inq)
				tell_left(c, fd, h);
			else
				h->msg_controllen = 0;
		}
		return done(c, r);
	}
	return WHOLE(received(c, UNKICKED(fd, POLLIN, real.recvmsg(fd, h, flags)), flags), in, fd, h->msg_iov, real_size(h->msg_iovlen), h->msg_control ? MSG_DONTWAIT : WAITS(flags));
}

// On a lane it is so many calls of recvmsg. The time counts after each of them only,
// as in the kernel.
static int lane_recvmmsg(struct conn *c, int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	const time_t century = 3000000000; // so that nanoseconds do not overflow
	time_t s = timeout && timeout->tv_sec < century ? timeout->tv_sec : century;
	uint64_t end = timeout ? clock_ns() + (uint64_t)s * 1000000000u + (uint64_t)timeout->tv_nsec : 0;
	int e = 0;
	socklen_t len = sizeof e;
	if (!(flags & MSG_ERRQUEUE) && getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0 && e) {
		errno = e; // this call tells it before any byte
		return -1;
	}
	unsigned i;
	int saved = errno;
	for (i = 0; i < n; i++) {
		ssize_t r = recvmsg(fd, &v[i].msg_hdr, flags & ~MSG_WAITFORONE);
		if (r < 0 && i > 0 && errno != EAGAIN && conn_engaged(c))
			atomic_store(&c->error, errno); // for the next call
		if (r < 0 && i == 0)
			return -1;
		if (r < 0) {
			errno = saved;
			break;
		}
		v[i].msg_len = (unsigned)r;
		if (flags & MSG_WAITFORONE)
			flags |= MSG_DONTWAIT;
		uint64_t now = timeout ? clock_ns() : 0;
		if (timeout)
			*timeout = (struct timespec){now < end ? (time_t)((end - now) / 1000000000u) : 0,
						     now < end ? (long)((end - now) % 1000000000u) : 0};
		if (timeout && now >= end)
			return (int)i + 1;
	}
	return (int)i;
}

// receive_all: who is interrupted after the first message leaves ERESTARTSYS as the socket's error.
static int receive_all(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	enum { RESTART = 512 };
	struct sleep_since since;
	uint64_t until = 0;
	unsigned did = 0;
	int r, e, saved = errno;
	socklen_t len = sizeof e;
	do {
		since = sleep_now();
		r = (int)UNKICKED(fd, POLLIN, real.recvmmsg(fd, v + did, n - did, flags, timeout));
		did += r > 0 ? (unsigned)r : 0;
		if (r <= 0 || did == n || flags & MSG_WAITFORONE || !sleep_kicked(since))
			break;
		if (real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &len) == 0 && e && e != RESTART)
			break;
	} while (!timeout && goes_on(&until, fd, POLLIN, flags));
	if (did == 0)
		return r;
	errno = saved;
	return (int)did;
}

EXPORT int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	HOOK();
	struct conn *c = conn_get(fd);
	if (!c) {
		int r = receive_all(fd, v, n, flags, timeout);
		for (int i = 0; i < r; i++)
			if (passing_some(&v[i].msg_hdr))
				passing_came(&v[i].msg_hdr, flags);
		return r;
	}
	if (c->stamps && n > 0)
		stamped(c, fd, &v[0].msg_hdr);
	bool legal = !timeout || (timeout->tv_sec >= 0 && timeout->tv_nsec >= 0 && timeout->tv_nsec < 1000000000);
	if (legal && conn_enter(c, fd))
		return (int)done(c, lane_recvmmsg(c, fd, v, n, flags, timeout));
	int got = (int)UNKICKED(fd, POLLIN, real.recvmmsg(fd, v, n, flags, timeout));
	ssize_t bytes = 0;
	for (int i = 0; i < got; i++)
		bytes += v[i].msg_len;
	received(c, bytes, flags);
	return got;
}

EXPORT ssize_t write(int fd, const void *buf, size_t n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {(void *)(uintptr_t)buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLOUT, real.write(fd, buf, n)), out, fd, &iov, 1, 0);
	if (lane_send(c, fd, &iov, 1, 0, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(fd, POLLOUT, real.write(fd, buf, n))), out, fd, &iov, 1, 0);
}
ALSO(__write, write);

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {(void *)(uintptr_t)buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLOUT, real.send(fd, buf, n, flags)), out, fd, &iov, 1, flags);
	if (lane_send(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(fd, POLLOUT, real.send(fd, buf, n, flags))), out, fd, &iov, 1, flags);
}
ALSO(__send, send);

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *a, socklen_t alen)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {(void *)(uintptr_t)buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLOUT, real.sendto(fd, buf, n, flags, a, alen)), out, fd, &iov, 1, flags);
	if (lane_send(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(fd, POLLOUT, real.sendto(fd, buf, n, flags, a, alen))), out, fd, &iov, 1, flags);
}

static bool nothing(const struct iovec *iov, int n)
{
	while (n > 0 && iov[n - 1].iov_len == 0)
		n--;
	return n == 0;
}

EXPORT ssize_t writev(int fd, const struct iovec *iov, int n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(fd, POLLOUT, real.writev(fd, iov, n)), out, fd, iov, (size_t)n, 0);
	if (n < 0 || n > IOV_MAX) {
		errno = EINVAL;
		return done(c, -1);
	}
	if (!nothing(iov, n) && lane_send(c, fd, iov, n, 0, &r)) // of nothing the kernel asks no socket
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(fd, POLLOUT, real.writev(fd, iov, n))), out, fd, iov, (size_t)n, 0);
}

EXPORT ssize_t sendmsg(int fd, const struct msghdr *h, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	ssize_t r;
	if (!c) {
		bool passes = passing_some(h);
		if (passes)
			passing_begin(h);
		r = WHOLE(UNKICKED(fd, POLLOUT, real.sendmsg(fd, h, flags)), out, fd, h->msg_iov, real_size(h->msg_iovlen), flags);
		if (passes)
			passing_end(h, r >= 0);
		return r;
	}
	if (real_size(h->msg_iovlen) > IOV_MAX) {
		errno = EMSGSIZE;
		return done(c, -1);
	}
	if (h->msg_control && real_size(h->msg_controllen))
		conn_stay(c, fd, REASON_OPTION);
	if (lane_send(c, fd, h->msg_iov, (int)h->msg_iovlen, flags, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(fd, POLLOUT, real.sendmsg(fd, h, flags))), out, fd, h->msg_iov, real_size(h->msg_iovlen), flags);
}

static bool passing_any(const struct mmsghdr *v, unsigned n)
{
	unsigned i = 0;
	while (v && i < n && !passing_some(&v[i].msg_hdr))
		i++;
	return v && i < n;
}

EXPORT int sendmmsg(int fd, struct mmsghdr *v, unsigned n, int flags)
{
	HOOK();
	if (!files_conn(fd) && !passing_any(v, n))
		return (int)PARTS(fd, POLLOUT, flags, n, did, real.sendmmsg(fd, v + did, n - (unsigned)did, flags));
	unsigned i;
	int saved = errno;
	for (i = 0; i < n && i < IOV_MAX; i++) { // as many as the kernel takes at once
		ssize_t r = sendmsg(fd, &v[i].msg_hdr, flags);
		if (r < 0 && i == 0)
			return -1;
		if (r < 0) {
			errno = saved;
			break;
		}
		v[i].msg_len = (unsigned)r;
	}
	return (int)i;
}

static ssize_t by_kernel(struct conn *c, int to, int from, off_t *offset, size_t n)
{
	ssize_t r = PARTS(to, POLLOUT, 0, n, did, real.sendfile(to, from, offset, n - did));
	return c ? sent(c, r) : r;
}

EXPORT ssize_t sendfile(int out, int in, off_t *offset, size_t n)
{
	HOOK();
	struct conn *c = conn_get(out);
	if (!c)
		return by_kernel(NULL, out, in, offset, n);
	int saved = errno;
	while (conn_enter(c, out)) {
		ssize_t r = stream_sendfile(c, out, in, offset, n);
		if (r >= 0)
			errno = saved;
		if (r != STREAM_NATIVE)
			return done(c, r);
		if (conn_engaged(c)) { // not a file
			errno = EINVAL;
			return done(c, -1);
		}
	}
	errno = saved;
	return by_kernel(c, out, in, offset, n);
}
EXPORT ssize_t sendfile64(int out, int in, off_t *offset, size_t n) { return sendfile(out, in, offset, n); }

// What fortified programs call.
EXPORT ssize_t __read_chk(int fd, void *buf, size_t n, size_t room)
{
	if (n > room)
		__chk_fail();
	return read(fd, buf, n);
}
EXPORT ssize_t __recv_chk(int fd, void *buf, size_t n, size_t room, int flags)
{
	if (n > room)
		__chk_fail();
	return recv(fd, buf, n, flags);
}
EXPORT ssize_t __recvfrom_chk(int fd, void *buf, size_t n, size_t room, int flags, struct sockaddr *a, socklen_t *alen)
{
	if (n > room)
		__chk_fail();
	return recvfrom(fd, buf, n, flags, a, alen);
}
