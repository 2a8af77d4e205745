// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that move bytes. Each one counts what it moved over TCP, so
// that both ends know the offset at which a direction switches.
#include "hook.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
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

// rest goes on with a call that a kick alone has cut short: the kernel gives what had been moved up
// to then. Where it was short for another reason, too, the next part says so, and is not told.
static ssize_t rest(ssize_t did, ssize_t (*move)(int, void *, size_t, int), int fd, const struct iovec *iov, size_t n, int flags)
{
	size_t skip = (size_t)did;
	int saved = errno;
	for (; n > 0; iov++, n--) {
		size_t left = skip < iov->iov_len ? iov->iov_len - skip : 0;
		ssize_t r = left ? move(fd, (char *)iov->iov_base + skip, left, flags) : 0;
		if (r > 0)
			did += r;
		if (r != (ssize_t)left)
			break;
		skip -= skip < iov->iov_len ? skip : iov->iov_len;
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

static ssize_t writes(int fd, void *from, size_t n, int flags)
{
	(void)flags;
	return write(fd, from, n);
}

static ssize_t sends(int fd, void *from, size_t n, int flags) { return send(fd, from, n, flags); }

// receives: without MSG_WAITALL less is not short, and of messages it may be all.
static ssize_t receives(int fd, void *to, size_t n, int flags)
{
	int type = 0;
	socklen_t len = sizeof type;
	bool waits = (flags & (MSG_WAITALL | MSG_PEEK | MSG_OOB | MSG_ERRQUEUE)) == MSG_WAITALL;
	return waits && getsockopt(fd, SOL_SOCKET, SO_TYPE, &type, &len) == 0 && type == SOCK_STREAM ? recv(fd, to, n, flags) : 0;
}

EXPORT ssize_t read(int fd, void *buf, size_t n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return UNKICKED(real.read(fd, buf, n));
	if (n == 0)
		return done(c, 0); // read(2) says so before it asks TCP
	if (lane_recv(c, fd, &iov, 1, 0, &r))
		return done(c, r);
	return received(c, UNKICKED(real.read(fd, buf, n)), 0);
}
ALSO(__read, read);

EXPORT ssize_t recv(int fd, void *buf, size_t n, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(real.recv(fd, buf, n, flags)), receives, fd, &iov, 1, flags);
	if (lane_recv(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(received(c, UNKICKED(real.recv(fd, buf, n, flags)), flags), receives, fd, &iov, 1, flags);
}

EXPORT ssize_t recvfrom(int fd, void *buf, size_t n, int flags, struct sockaddr *a, socklen_t *alen)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(real.recvfrom(fd, buf, n, flags, a, alen)), receives, fd, &iov, 1, flags);
	if (lane_recv(c, fd, &iov, 1, flags, &r)) {
		if (r >= 0 && a && alen)
			*alen = 0; // as TCP does
		return done(c, r);
	}
	return WHOLE(received(c, UNKICKED(real.recvfrom(fd, buf, n, flags, a, alen)), flags), receives, fd, &iov, 1, flags);
}

EXPORT ssize_t readv(int fd, const struct iovec *iov, int n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	ssize_t r;
	if (!c)
		return UNKICKED(real.readv(fd, iov, n));
	if (n >= 0 && n <= IOV_MAX && lane_recv(c, fd, iov, n, 0, &r))
		return done(c, r);
	if (n < 0 || n > IOV_MAX) {
		errno = EINVAL;
		return done(c, -1);
	}
	return received(c, UNKICKED(real.readv(fd, iov, n)), 0);
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
	int whole = h->msg_control ? 0 : flags; // what else came with the rest would be lost
	if (!c) {
		r = WHOLE(UNKICKED(real.recvmsg(fd, h, flags)), receives, fd, h->msg_iov, real_size(h->msg_iovlen), whole);
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
	return WHOLE(received(c, UNKICKED(real.recvmsg(fd, h, flags)), flags), receives, fd, h->msg_iov, real_size(h->msg_iovlen), whole);
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

EXPORT int recvmmsg(int fd, struct mmsghdr *v, unsigned n, int flags, struct timespec *timeout)
{
	HOOK();
	struct conn *c = conn_get(fd);
	if (!c) {
		int r = (int)UNKICKED(real.recvmmsg(fd, v, n, flags, timeout));
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
	int got = (int)UNKICKED(real.recvmmsg(fd, v, n, flags, timeout));
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
		return WHOLE(UNKICKED(real.write(fd, buf, n)), writes, fd, &iov, 1, 0);
	if (lane_send(c, fd, &iov, 1, 0, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(real.write(fd, buf, n))), writes, fd, &iov, 1, 0);
}
ALSO(__write, write);

EXPORT ssize_t send(int fd, const void *buf, size_t n, int flags)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {(void *)(uintptr_t)buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(real.send(fd, buf, n, flags)), sends, fd, &iov, 1, flags);
	if (lane_send(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(real.send(fd, buf, n, flags))), sends, fd, &iov, 1, flags);
}
ALSO(__send, send);

EXPORT ssize_t sendto(int fd, const void *buf, size_t n, int flags, const struct sockaddr *a, socklen_t alen)
{
	HOOK();
	struct conn *c = conn_get(fd);
	struct iovec iov = {(void *)(uintptr_t)buf, n};
	ssize_t r;
	if (!c)
		return WHOLE(UNKICKED(real.sendto(fd, buf, n, flags, a, alen)), sends, fd, &iov, 1, flags);
	if (lane_send(c, fd, &iov, 1, flags, &r))
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(real.sendto(fd, buf, n, flags, a, alen))), sends, fd, &iov, 1, flags);
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
		return WHOLE(UNKICKED(real.writev(fd, iov, n)), writes, fd, iov, (size_t)n, 0);
	if (n < 0 || n > IOV_MAX) {
		errno = EINVAL;
		return done(c, -1);
	}
	if (!nothing(iov, n) && lane_send(c, fd, iov, n, 0, &r)) // of nothing the kernel asks no socket
		return done(c, r);
	return WHOLE(sent(c, UNKICKED(real.writev(fd, iov, n))), writes, fd, iov, (size_t)n, 0);
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
		r = WHOLE(UNKICKED(real.sendmsg(fd, h, flags)), sends, fd, h->msg_iov, real_size(h->msg_iovlen), flags);
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
	return WHOLE(sent(c, UNKICKED(real.sendmsg(fd, h, flags))), sends, fd, h->msg_iov, real_size(h->msg_iovlen), flags);
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
		return (int)UNKICKED(real.sendmmsg(fd, v, n, flags));
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

static ssize_t by_kernel(struct conn *c, int out, int in, off_t *offset, size_t n)
{
	struct sleep_since all = sleep_now();
	ssize_t r = UNKICKED(real.sendfile(out, in, offset, n)), more;
	if (c)
		sent(c, r);
	if (r <= 0 || (size_t)r >= n || !sleep_kicked(all))
		return r;
	int saved = errno;
	if ((more = sendfile(out, in, offset, n - (size_t)r)) > 0) // it has been cut short, as in rest()
		r += more;
	errno = saved;
	return r;
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
