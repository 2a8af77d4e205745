// SPDX-License-Identifier: Apache-2.0
//
// flow.c makes random calls that write or read one direction of a connection,
// and verifies every byte, the readiness that poll and its kin promised, and
// the end.
//
// Byte i of a direction is a byte of word i/8, and a word is its own number in
// disguise. So a reader that does not know at which offset a block begins can
// tell from 16 bytes of it: that is how reads are checked that several threads
// make at once. Blocks that are shorter count only in a sum over all bytes.
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "exnet.h"

static const uint64_t disguise = 0x9e3779b97f4a7c15u, undo = 0xf1de83e19937733du; // inverses mod 2^64

static uint64_t word(const struct direction *d, uint64_t i) { return (i * disguise) ^ d->key; }

static void fill(const struct direction *d, uint64_t off, unsigned char *p, size_t n)
{
	size_t i = 0;
	for (; i < n && (off + i) % 8; i++)
		p[i] = (unsigned char)(word(d, (off + i) / 8) >> (off + i) % 8 * 8);
	for (; i + 8 <= n; i += 8) {
		uint64_t w = word(d, (off + i) / 8);
		memcpy(p + i, &w, 8);
	}
	for (; i < n; i++)
		p[i] = (unsigned char)(word(d, (off + i) / 8) >> (off + i) % 8 * 8);
}

static void verify(const struct direction *d, uint64_t off, const unsigned char *p, size_t n, const char *who)
{
	static __thread unsigned char want[1 << 19];
	for (size_t at = 0; at < n; at += sizeof want) {
		size_t part = n - at < sizeof want ? n - at : sizeof want;
		fill(d, off + at, want, part);
		if (memcmp(want, p + at, part) == 0)
			continue;
		size_t i = 0;
		while (want[i] == p[at + i])
			i++;
		// Where the bytes are from, if they are of this stream at all.
		uint64_t w = 0, from = ~0ull;
		for (size_t k = 0; k < 8 && i + k + 8 <= part; k++) {
			memcpy(&w, p + at + i + k, 8);
			uint64_t number = (w ^ d->key) * undo;
			if (number < (d->total + 7) / 8)
				from = number * 8 - k;
		}
		fail("%s: wrong byte at offset %lu (%zu of a block of %zu at %lu): %02x, want %02x; it looks like offset %ld",
			who, off + at + i, at + i, n, off, p[at + i], want[i], (long)from);
	}
}

// verify_somewhere is verify for a block whose offset only it knows itself.
static void verify_somewhere(const struct direction *d, const unsigned char *p, size_t n, const char *who)
{
	if (n < 16)
		return;
	for (unsigned a = 0; a < 8; a++) {
		uint64_t w;
		memcpy(&w, p + a, 8);
		uint64_t number = (w ^ d->key) * undo;
		if (number < (d->total + 7) / 8 && number * 8 >= a) {
			verify(d, number * 8 - a, p, n, who);
			return;
		}
	}
	fail("%s: a block of %zu bytes is not of this stream", who, n);
}

uint64_t expected_sum(const struct direction *d)
{
	uint64_t sum = 0;
	for (uint64_t i = 0; i < d->total; i++)
		sum += (unsigned char)(word(d, i / 8) >> i % 8 * 8);
	return sum;
}

static size_t size(struct caller *c)
{
	static const uint32_t edges[] = {1, 2, 8, 119, 120, 121, 480, 481, 1448, 4095, 4096, 4097, 16384,
		65535, 65536, 65537, 131072, 262143, 262144, 262145};
	if (c->d->small)
		return 1 + rnd(&c->rng, one_in(&c->rng, 3) ? 400 : 16);
	if (run->buffers && one_in(&c->rng, 2))
		return 270000 + rnd(&c->rng, 250000); // announced if it lies in a buffer
	if (one_in(&c->rng, 3))
		return 1 + rnd(&c->rng, 300000);
	return edges[rnd(&c->rng, sizeof edges / sizeof edges[0])];
}

static void pause_sometimes(struct caller *c)
{
	uint32_t p = rnd(&c->rng, 200);
	if (p == 0)
		usleep(2000 + rnd(&c->rng, 3000));
	else if (p < 8)
		usleep(rnd(&c->rng, 300));
	else if (p < 20)
		sched_yield();
}

static bool peer_gone(int e) { return e == EPIPE || e == ECONNRESET; }

// note_reset is for calls that take nothing: they take the error all the same.
static void note_reset(struct caller *c)
{
	if (peer_gone(errno) && run->death)
		c->d->r.done = was_reset;
}

// await_ready sleeps until fd is ready, in one of the ways that programs do. It
// is called after a call gave EAGAIN, so an edge must follow.
static void await_ready(struct caller *c, bool out)
{
	int r = 0;
	switch (rnd(&c->rng, 4)) {
	case 0: {
		struct pollfd p = {.fd = c->fd, .events = out ? POLLOUT : POLLIN | POLLRDHUP};
		r = poll(&p, 1, -1);
		break;
	}
	case 1: {
		struct pollfd p = {.fd = c->fd, .events = out ? POLLOUT : POLLIN};
		r = ppoll(&p, 1, NULL, NULL);
		break;
	}
	case 2: {
		fd_set s;
		FD_ZERO(&s);
		FD_SET(c->fd, &s);
		r = select(c->fd + 1, out ? NULL : &s, out ? &s : NULL, NULL, NULL);
		break;
	}
	default: {
		struct epoll_event e = {.events = (out ? EPOLLOUT : EPOLLIN | EPOLLRDHUP) | (c->edge ? EPOLLET : EPOLLONESHOT), .data.u64 = (uintptr_t)c};
		if (c->set < 0) {
			c->set = epoll_create1(EPOLL_CLOEXEC);
			if (epoll_ctl(c->set, EPOLL_CTL_ADD, c->fd, &e) < 0)
				fail("%s: epoll_ctl add: %s", c->who, strerrorname_np(errno));
		} else if (!c->edge && epoll_ctl(c->set, EPOLL_CTL_MOD, c->fd, &e) < 0)
			fail("%s: epoll_ctl mod: %s", c->who, strerrorname_np(errno));
		// An edge from before the EAGAIN may still be there; the caller looks again.
		struct epoll_event got;
		r = epoll_wait(c->set, &got, 1, -1);
		if (r == 1 && got.data.u64 != (uintptr_t)c)
			fail("%s: epoll data %lx is not ours", c->who, (unsigned long)got.data.u64);
		if (c->edge)
			return;
	}
	}
	if (r < 0 && errno != EINTR)
		fail("%s: waiting: %s", c->who, strerrorname_np(errno));
	// Nobody else reads (or writes) here: what was promised must hold.
	if (r > 0 && !c->d->concurrent && !out) {
		char b;
		r = (int)recv(c->fd, &b, 1, MSG_PEEK | MSG_DONTWAIT);
		if (r < 0 && errno == EAGAIN)
			fail("%s: readable, but then EAGAIN", c->who);
		if (r < 0)
			note_reset(c);
	}
}

void half_take(struct half *h)
{
	if (pthread_mutex_lock(&h->lock) == EOWNERDEAD)
		pthread_mutex_consistent(&h->lock);
}

void half_give(struct half *h) { pthread_mutex_unlock(&h->lock); }

static ssize_t write_call(struct caller *c, unsigned char *p, size_t n)
{
	int flags = MSG_NOSIGNAL | (one_in(&c->rng, 3) ? MSG_DONTWAIT : 0);
	struct iovec v[2] = {{p, n / 3}, {p + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	switch (rnd(&c->rng, 12)) {
	case 0:
	case 1:
		return send(c->fd, p, n, flags);
	case 2:
		return sendto(c->fd, p, n, flags, NULL, 0);
	case 3:
		return writev(c->fd, v, 2);
	case 4:
		return sendmsg(c->fd, &m, flags);
	case 5: {
		if (c->file < 0)
			c->file = memfd_create("stream", MFD_CLOEXEC);
		off_t at = 0;
		// TCP may still hold pages of the last one, which must not change: drop them.
		if (ftruncate(c->file, 0) < 0 || pwrite(c->file, p, n, 0) != (ssize_t)n)
			fail("%s: pwrite: %s", c->who, strerrorname_np(errno));
		ssize_t r = sendfile(c->fd, c->file, &at, n);
		if (r > 0 && at != r)
			fail("%s: sendfile gave %zd and moved its offset by %ld", c->who, r, (long)at);
		return r;
	}
	default:
		return write(c->fd, p, n);
	}
}

enum { room = 1 << 19 }; // bytes that writers write out of

// another gives memory to write out of for p: with STREAM_BUFFERS registered buffers, as far
// as there are any, by turns with memory of malloc. It says whether that came from exn_buffer.
static unsigned char *another(struct caller *c, unsigned char *p, bool *buffer)
{
	if (p && (!run->buffers || !one_in(&c->rng, exn_buffer_registered(c->fd, p) ? 12 : 3)))
		return p;
	if (*buffer)
		exn_buffer_free(p);
	else
		free(p);
	*buffer = run->buffers && !one_in(&c->rng, 6);
	p = *buffer ? exn_buffer(c->fd, room) : malloc(room);
	if (!p)
		fail("%s: no memory", c->who);
	return p;
}

void write_flow(struct caller *c)
{
	struct direction *d = c->d;
	unsigned char *p = NULL;
	bool done = false, buffer = false;
	for (int left = c->leave; left != 0 && !done; left -= left > 0) {
		p = another(c, p, &buffer);
		while (d->hold)
			usleep(50);
		half_take(&d->w);
		for (uint32_t calls = 1 + rnd(&c->rng, 8); calls && !d->w.done; calls--) {
			uint64_t off = d->w.off;
			size_t n = size(c);
			if (off < d->total) {
				if (n > d->total - off)
					n = d->total - off;
				fill(d, off, p, n);
				d->w.attempt = off + n;
				d->w.calls++;
				size_t at = run->buffers ? rnd(&c->rng, (uint32_t)(room - n + 1)) : 0;
				memmove(p + at, p, n);
				ssize_t r = write_call(c, p + at, n);
				if (run->buffers) { // it is ours again
					int saved = errno;
					memset(p + at, 0xee, n);
					errno = saved;
				}
				if (r > (ssize_t)n || r == 0)
					fail("%s: a write of %zu gave %zd", c->who, n, r);
				if (r > 0)
					d->w.off = off + (size_t)r;
				else if (errno == EAGAIN)
					await_ready(c, true);
				else if (peer_gone(errno) && run->death)
					d->w.done = was_reset;
				else if (errno != EINTR)
					fail("%s: write at %lu of %lu: %s", c->who, off, d->total, strerrorname_np(errno));
			}
			if (d->w.off == d->total && !d->w.done) {
				d->w.done = at_end;
				if (!c->eof_by_close && shutdown(c->fd, SHUT_WR) < 0 && !(run->death && errno == ENOTCONN))
					fail("%s: shutdown: %s", c->who, strerrorname_np(errno));
			}
		}
		done = d->w.done;
		half_give(&d->w);
		pause_sometimes(c);
	}
	if (buffer)
		exn_buffer_free(p);
	else
		free(p);
}

static ssize_t read_call(struct caller *c, unsigned char *p, size_t n, bool *all)
{
	int flags = one_in(&c->rng, 3) ? MSG_DONTWAIT : 0;
	struct iovec v[2] = {{p, n / 3}, {p + n / 3, n - n / 3}};
	struct msghdr m = {.msg_iov = v, .msg_iovlen = 2};
	// A call that waits for more lets other readers in between its bytes.
	switch (rnd(&c->rng, c->d->concurrent ? 5 : 12)) {
	case 0:
	case 1:
		return recv(c->fd, p, n, flags);
	case 2:
		return recvfrom(c->fd, p, n, flags, NULL, NULL);
	case 3:
		return readv(c->fd, v, 2);
	case 4:
		return recvmsg(c->fd, &m, flags);
	case 5:
		*all = true;
		return recv(c->fd, p, n, MSG_WAITALL);
	default:
		return read(c->fd, p, n);
	}
}

// look peeks and compares FIONREAD with it; nothing is taken.
static void look(struct caller *c, unsigned char *p, uint64_t off)
{
	int there = 0;
	ssize_t r = recv(c->fd, p, size(c), MSG_PEEK | MSG_DONTWAIT);
	if (r < 0)
		note_reset(c);
	if (r <= 0)
		return;
	verify(c->d, off, p, (size_t)r, c->who);
	if (ioctl(c->fd, FIONREAD, &there) < 0)
		fail("%s: FIONREAD: %s", c->who, strerrorname_np(errno));
	// What another thread hands over meanwhile is for a moment partly with the writer.
	if ((there < r && !run->hands_over) || (uint64_t)there > c->d->total - off)
		fail("%s: FIONREAD %d after a peek of %zd, %lu are left", c->who, there, r, c->d->total - off);
}

// judge looks at what a read gave; it returns false when there is no more.
static bool judge(struct caller *c, const unsigned char *p, size_t n, ssize_t r, bool all)
{
	struct direction *d = c->d;
	uint64_t off = d->r.off;
	if (r > (ssize_t)n)
		fail("%s: a read of %zu gave %zd", c->who, n, r);
	if (r > 0 && d->concurrent) {
		verify_somewhere(d, p, (size_t)r, c->who);
		uint64_t sum = 0;
		for (ssize_t i = 0; i < r; i++)
			sum += p[i];
		d->r.sum += sum;
		d->r.off += (uint64_t)r;
		return true;
	}
	if (r > 0) {
		if (off + (uint64_t)r > d->total)
			fail("%s: %lu bytes at %lu, but there are only %lu", c->who, (uint64_t)r, off, d->total);
		verify(d, off, p, (size_t)r, c->who);
		if (all && r < (ssize_t)n && off + n <= d->total && !run->death && !c->interrupted)
			fail("%s: WAITALL of %zu gave %zd at %lu of %lu", c->who, n, r, off, d->total);
		d->r.off = off + (uint64_t)r;
		return true;
	}
	if (r == 0) {
		if (off != d->total && !d->concurrent && !run->death)
			fail("%s: the end at %lu of %lu", c->who, off, d->total);
		if (!d->r.done) // the first who is told of a reset takes it: the others see an end
			d->r.done = at_end;
		return false;
	}
	if (errno == EAGAIN)
		await_ready(c, false);
	else if (peer_gone(errno) && run->death) {
		d->r.done = was_reset;
		return false;
	} else if (errno != EINTR)
		fail("%s: read at %lu of %lu: %s", c->who, off, d->total, strerrorname_np(errno));
	return true;
}

void read_flow(struct caller *c)
{
	struct direction *d = c->d;
	unsigned char *p = malloc(1 << 19);
	bool more = true;
	for (int left = c->leave; left != 0 && more; left -= left > 0) {
		if (!d->concurrent)
			half_take(&d->r);
		for (uint32_t calls = 1 + rnd(&c->rng, 8); calls && more; calls--) {
			if (!d->concurrent && d->r.done) {
				more = false;
				break;
			}
			if (!d->concurrent && one_in(&c->rng, 6))
				look(c, p, d->r.off);
			bool all = false;
			size_t n = size(c);
			d->r.calls++;
			ssize_t r = read_call(c, p, n, &all);
			more = judge(c, p, n, r, all);
		}
		if (!d->concurrent)
			half_give(&d->r);
		pause_sometimes(c);
	}
	free(p);
}

void caller_free(struct caller *c)
{
	if (c->set >= 0)
		close(c->set);
	if (c->file >= 0)
		close(c->file);
}
