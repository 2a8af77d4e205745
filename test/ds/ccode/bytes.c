// SPDX-License-Identifier: Apache-2.0
//
// bytes.c makes the calls that write and read.
#include "calls.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

static const struct word message_flags[] = {
	{"peek", MSG_PEEK}, {"waitall", MSG_WAITALL}, {"dontwait", MSG_DONTWAIT},
	{"nosignal", MSG_NOSIGNAL}, {"trunc", MSG_TRUNC}, {"oob", MSG_OOB}, {"more", MSG_MORE},
	{"ctrunc", MSG_CTRUNC}, {"waitforone", MSG_WAITFORONE}, {"zerocopy", MSG_ZEROCOPY}, {"errqueue", MSG_ERRQUEUE}, {NULL, 0},
};

unsigned char *filled(unsigned id, uint64_t from, size_t n)
{
	unsigned char *p = malloc(n ? n : 1);
	if (!p)
		abort();
	for (size_t i = 0; i < n; i++)
		p[i] = pattern(id, from + i);
	return p;
}

static const uint64_t hash_start = 0xcbf29ce484222325u;

static uint64_t hash(uint64_t h, const unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}

void say_bytes(struct call *c, const unsigned char *p, long n)
{
	if (n > 0)
		say(c, " bytes=%016lx", hash(hash_start, p, (size_t)n));
}

enum { PARTS = 40 };

// vector cuts a buffer at the sizes "a,b,c"; the last is all that is left when
// it is missing.
static int vector(const char *sizes, unsigned char **buffer, struct iovec *v, int max, size_t *total)
{
	int n = 0;
	*total = 0;
	for (const char *p = sizes; *p && n < max; n++) {
		char *end;
		v[n].iov_len = strtoul(p, &end, 0);
		*total += v[n].iov_len;
		p = *end ? end + 1 : end;
	}
	*buffer = calloc(1, *total + 1);
	if (!*buffer)
		abort();
	size_t at = 0;
	for (int i = 0; i < n; i++) {
		v[i].iov_base = *buffer + at;
		at += v[i].iov_len;
	}
	return n;
}

// Writing: N bytes of the step's pattern

static void c_write(struct call *c) // write|send|sendto H N [FLAGS]
{
	size_t n = (size_t)number(c, 2);
	unsigned char *p = filled(c->id, 0, n);
	int flags = (int)mask(arg(c, 3), message_flags);
	switch (c->argv[0][0] == 'w' ? 0 : c->argv[0][4] == 't') {
	case 0:
		if (c->argv[0][0] == 'w')
			result(c, write(fd_of(c, 1), p, n));
		else
			result(c, send(fd_of(c, 1), p, n, flags));
		break;
	default:
		result(c, sendto(fd_of(c, 1), p, n, flags, NULL, 0));
	}
	free(p);
}

static void c_writev(struct call *c) // writev|sendmsg|sendmmsg H N,N,... [FLAGS]
{
	struct iovec v[PARTS];
	unsigned char *buffer;
	size_t total;
	int n = vector(arg(c, 2), &buffer, v, PARTS, &total);
	for (size_t i = 0; i < total; i++)
		buffer[i] = pattern(c->id, i);
	int flags = (int)mask(arg(c, 3), message_flags), fd = fd_of(c, 1);
	struct mmsghdr m = {.msg_hdr = {.msg_iov = v, .msg_iovlen = (size_t)n}};
	if (strcmp(c->argv[0], "writev") == 0)
		result(c, writev(fd, v, n));
	else if (strcmp(c->argv[0], "sendmsg") == 0)
		result(c, sendmsg(fd, &m.msg_hdr, flags));
	else {
		result(c, sendmmsg(fd, &m, 1, flags));
		say(c, " len=%u", m.msg_len);
	}
	free(buffer);
}

static void c_sendmany(struct call *c) // sendmany H N,N,... [FLAGS]: sendmmsg, a message for each N
{
	struct iovec v[PARTS];
	struct mmsghdr m[PARTS] = {0};
	unsigned char *buffer;
	size_t total;
	int n = vector(arg(c, 2), &buffer, v, PARTS, &total);
	for (size_t i = 0; i < total; i++)
		buffer[i] = pattern(c->id, i);
	for (int i = 0; i < n; i++)
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	int r = sendmmsg(fd_of(c, 1), m, (unsigned)n, (int)mask(arg(c, 3), message_flags));
	result(c, r);
	for (int i = 0; i < r; i++)
		say(c, " %u", m[i].msg_len);
	free(buffer);
}

static void c_sendfile(struct call *c) // sendfile H OFFSET N
{
	char name[] = "/tmp/ds-player-XXXXXX";
	size_t n = (size_t)number(c, 3);
	off_t at = number(c, 2);
	int file = mkstemp(name);
	unsigned char *p = filled(c->id, 0, n + (size_t)at);
	unlink(name);
	if (file < 0 || write(file, p, n + (size_t)at) < 0)
		abort();
	lseek(file, 0, SEEK_SET);
	result(c, sendfile(fd_of(c, 1), file, &at, n));
	say(c, " at=%ld file=%ld", (long)at, (long)lseek(file, 0, SEEK_CUR));
	close(file);
	free(p);
}

static void c_push(struct call *c) // push H N CHUNK [uncounted]: blocking, until all N are taken
{
	size_t n = (size_t)number(c, 2), chunk = (size_t)number(c, 3), at = 0;
	ssize_t r = 0;
	while (at < n) {
		size_t want = n - at < chunk ? n - at : chunk;
		unsigned char *p = filled(c->id, at, want);
		r = write(fd_of(c, 1), p, want);
		free(p);
		if (r <= 0)
			break;
		at += (size_t)r;
	}
	if (c->argc <= 4)
		say(c, "%zu", at);
	if (r < 0)
		say(c, " then %s", strerrorname_np(errno));
}

static void c_fill(struct call *c) // fill H CHUNK: non-blocking, until not a byte more is taken
{
	size_t chunk = (size_t)number(c, 2);
	uint64_t at = 0;
	ssize_t r;
	int64_t since = now_ms();
	do { // TCP takes a little more once it has moved bytes to the reader's side
		unsigned char *p = filled(c->id, at, chunk);
		r = send(fd_of(c, 1), p, chunk, MSG_DONTWAIT | MSG_NOSIGNAL);
		free(p);
		if (r > 0) {
			at += (uint64_t)r;
			since = now_ms();
			continue;
		}
		if (r == 0 || errno != EAGAIN)
			break;
		if (chunk > 1) {
			chunk = 1;
			continue;
		}
		usleep(10000);
	} while (now_ms() - since < 150); // that is longer than TCP delays an acknowledgement
	say(c, "%s", r < 0 ? strerrorname_np(errno) : "0");
	snprintf(c->note, sizeof c->note, "fill=%lu:%u", at, c->id);
}

// Reading

static void c_read(struct call *c) // read|recv|recvfrom H N [FLAGS]
{
	size_t n = (size_t)number(c, 2);
	unsigned char *p = calloc(1, n + 1);
	int flags = (int)mask(arg(c, 3), message_flags), fd = fd_of(c, 1);
	struct sockaddr_storage ss;
	socklen_t len = sizeof ss;
	ssize_t r;
	bool from = strcmp(c->argv[0], "recvfrom") == 0;
	if (from)
		r = recvfrom(fd, p, n, flags, (struct sockaddr *)&ss, &len);
	else if (c->argv[0][2] == 'c')
		r = recv(fd, p, n, flags);
	else
		r = read(fd, p, n);
	result(c, r);
	if (from && r >= 0)
		say(c, " namelen=%u", len);
	say_bytes(c, p, r); // with trunc, TCP takes the bytes and leaves the buffer: a hash of zeros
	free(p);
}

static bool is_time(const struct cmsghdr *m) { return m->cmsg_level == SOL_SOCKET && (m->cmsg_type == SCM_TIMESTAMP || m->cmsg_type == SCM_TIMESTAMPNS); }

// age is how long ago it was, in units of 10 s: 0.
static int age(const struct cmsghdr *m)
{
	struct timeval when; // or struct timespec, whose first half is the same
	memcpy(&when, CMSG_DATA(m), sizeof when);
	return (int)((time(NULL) - when.tv_sec) / 10);
}

static void c_readv(struct call *c) // readv|recvmsg|recvmmsg H N,N,... [FLAGS [SPACE]], for control messages
{
	struct iovec v[PARTS];
	unsigned char *buffer;
	size_t total;
	int n = vector(arg(c, 2), &buffer, v, PARTS, &total), fd = fd_of(c, 1);
	int flags = (int)mask(arg(c, 3), message_flags);
	char name[64];
	struct { struct cmsghdr head; int left; char more[40]; } control = {0};
	struct mmsghdr m = {.msg_hdr = {.msg_iov = v, .msg_iovlen = (size_t)n, .msg_name = name, .msg_namelen = sizeof name,
		.msg_control = &control, .msg_controllen = c->argc > 4 ? (size_t)number(c, 4) : sizeof control}};
	long r;
	if (strcmp(c->argv[0], "readv") == 0)
		result(c, r = readv(fd, v, n));
	else {
		if (strcmp(c->argv[0], "recvmsg") == 0)
			result(c, r = recvmsg(fd, &m.msg_hdr, flags));
		else {
			result(c, r = recvmmsg(fd, &m, 1, flags, NULL));
			if (r > 0)
				say(c, " len=%ld", r = m.msg_len);
		}
		if (r >= 0) {
			say(c, " namelen=%u controllen=%zu flags=", m.msg_hdr.msg_namelen, m.msg_hdr.msg_controllen);
			say_mask(c, m.msg_hdr.msg_flags & ~MSG_CMSG_CLOEXEC, message_flags);
			if (m.msg_hdr.msg_controllen > 0)
				say(c, " cmsg=%zu,%d,%d,%d", control.head.cmsg_len, control.head.cmsg_level, control.head.cmsg_type,
				    is_time(&control.head) ? age(&control.head) : control.left);
		}
	}
	say_bytes(c, buffer, r);
	free(buffer);
}

static void c_recvmany(struct call *c) // recvmany H N,N,... [FLAGS [MS]]: recvmmsg, a message for each N
{
	struct iovec v[8];
	struct mmsghdr m[8] = {0};
	unsigned char *buffer;
	size_t total;
	int n = vector(arg(c, 2), &buffer, v, 8, &total), fd = fd_of(c, 1);
	struct timespec t = {number(c, 4) / 1000, number(c, 4) % 1000 * 1000000};
	for (int i = 0; i < n; i++)
		m[i].msg_hdr = (struct msghdr){.msg_iov = &v[i], .msg_iovlen = 1};
	int r = recvmmsg(fd, m, (unsigned)n, (int)mask(arg(c, 3), message_flags), number(c, 4) ? &t : NULL);
	result(c, r);
	for (int i = 0; i < r; i++) {
		say(c, " %u", m[i].msg_len);
		say_bytes(c, v[i].iov_base, m[i].msg_len);
	}
	free(buffer);
}

static void c_pull(struct call *c) // pull H N CHUNK: blocking, until N bytes, the end or an error
{
	size_t n = (size_t)number(c, 2), chunk = (size_t)number(c, 3), at = 0;
	unsigned char *p = malloc(chunk);
	uint64_t h = hash_start;
	ssize_t r = 1;
	if (!p)
		abort();
	while (at < n && (r = read(fd_of(c, 1), p, n - at < chunk ? n - at : chunk)) > 0) {
		h = hash(h, p, (size_t)r);
		at += (size_t)r;
	}
	say(c, "%zu bytes=%016lx", at, h);
	if (r <= 0)
		say(c, " then %s", r == 0 ? "end" : strerrorname_np(errno));
	free(p);
}

static void c_drain(struct call *c) // drain H TOTAL:STEP: all that "fill" of that step wrote
{
	char *end;
	uint64_t total = strtoul(arg(c, 2), &end, 10), at = 0;
	unsigned id = *end ? (unsigned)strtoul(end + 1, NULL, 10) : 0;
	static unsigned char p[65536];
	while (at < total) {
		size_t want = total - at < sizeof p ? total - at : sizeof p;
		ssize_t r = recv(fd_of(c, 1), p, want, 0);
		if (r <= 0) {
			say(c, "short, then %s", r == 0 ? "end" : strerrorname_np(errno));
			return;
		}
		for (ssize_t i = 0; i < r; i++)
			if (p[i] != pattern(id, at + (uint64_t)i)) {
				say(c, "wrong byte");
				return;
			}
		at += (uint64_t)r;
	}
	say(c, "all");
}

static void c_splice(struct call *c) // splice FROM TO N [nonblock]: one of them a pipe
{
	unsigned flags = strcmp(arg(c, 4), "nonblock") == 0 ? SPLICE_F_NONBLOCK : 0;
	result(c, splice(fd_of(c, 1), NULL, fd_of(c, 2), NULL, (size_t)number(c, 3), flags));
}

static void c_ioctl(struct call *c) // fionread H | atmark H
{
	int v = -1;
	int r = ioctl(fd_of(c, 1), c->argv[0][0] == 'f' ? FIONREAD : SIOCATMARK, &v);
	if (r < 0)
		result(c, r);
	else
		say(c, "%d", v);
}

static void c_unsent(struct call *c) // unsent H: SIOCOUTQ falls to 0 (ACKs may take 40 ms)
{
	int v = -1;
	for (int64_t end = now_ms() + guard; now_ms() < end; usleep(1000))
		if (ioctl(fd_of(c, 1), SIOCOUTQ, &v) < 0 || v == 0)
			break;
	say(c, "%s", v == 0 ? "none" : v < 0 ? strerrorname_np(errno) : "some");
}

static void c_await(struct call *c) // await H N: until FIONREAD says at least N
{
	int v = -1;
	for (int64_t end = now_ms() + guard; now_ms() < end; usleep(200))
		if (ioctl(fd_of(c, 1), FIONREAD, &v) < 0 || v >= number(c, 2))
			break;
	say(c, "%s", v >= number(c, 2) ? "there" : "missing");
}

// Ping-pong until both ends have had occasion to upgrade

static void c_ping(struct call *c) // ping H ROUNDS N
{
	size_t n = (size_t)number(c, 3);
	unsigned char *p = filled(c->id, 0, n);
	for (long i = 0; i < number(c, 2); i++)
		if (send(fd_of(c, 1), p, n, MSG_NOSIGNAL) != (ssize_t)n || recv(fd_of(c, 1), p, n, MSG_WAITALL) != (ssize_t)n) {
			say(c, "round %ld: ", i);
			result(c, -1);
			free(p);
			return;
		}
	say(c, "done");
	say_bytes(c, p, (long)n);
	free(p);
}

static void c_pong(struct call *c) // pong H ROUNDS N
{
	size_t n = (size_t)number(c, 3);
	unsigned char *p = malloc(n);
	for (long i = 0; i < number(c, 2); i++)
		if (recv(fd_of(c, 1), p, n, MSG_WAITALL) != (ssize_t)n || send(fd_of(c, 1), p, n, MSG_NOSIGNAL) != (ssize_t)n) {
			say(c, "round %ld: ", i);
			result(c, -1);
			free(p);
			return;
		}
	say(c, "done");
	free(p);
}

const struct entry byte_calls[] = {
	{"write", c_write, false}, {"send", c_write, false}, {"sendto", c_write, false},
	{"writev", c_writev, false}, {"sendmsg", c_writev, false}, {"sendmmsg", c_writev, false},
	{"sendmany", c_sendmany, false}, {"sendfile", c_sendfile, false}, {"push", c_push, false}, {"fill", c_fill, false},
	{"read", c_read, false}, {"recv", c_read, false}, {"recvfrom", c_read, false},
	{"readv", c_readv, false}, {"recvmsg", c_readv, false}, {"recvmmsg", c_readv, false},
	{"recvmany", c_recvmany, false}, {"splice", c_splice, false},
	{"pull", c_pull, false}, {"drain", c_drain, false}, {"fionread", c_ioctl, false},
	{"atmark", c_ioctl, false}, {"unsent", c_unsent, false}, {"await", c_await, false},
	{"ping", c_ping, false}, {"pong", c_pong, false},
	{NULL, NULL, false},
};
