// SPDX-License-Identifier: Apache-2.0
//
// Many connections between two processes, each with an epoll set.
//
//	crowd serve                          listens, says "port N", echoes until its input ends
//	crowd PORT CONNS BUSY ROUNDS BYTES   is its client:
//
// It opens CONNS connections and exchanges 64 bytes on each 100 times, so that each
// has its lanes. Then each has BYTES echoed, 16 connections at a time, every byte is
// verified, and 64 bytes are exchanged 100 times more. Then that is done ROUNDS times on
// each of the last BUSY connections, all of them at once. It says "exchanged" and the
// nanoseconds that one of these exchanges took, and waits for the end of its input.
//
// Exit status: 0 all is well, 1 not (said on stderr).
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { SMALL = 64, PIECE = 64 << 10, MOST = 20000, TOGETHER = 16, WARM = 100 };

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "crowd: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int epoll;
static char buffer[PIECE];

static void watch(int fd, uint32_t events, int op)
{
	struct epoll_event ev = {.events = events, .data.fd = fd};
	if (epoll_ctl(epoll, op, fd, &ev) < 0)
		die("epoll_ctl");
}

// What the server has read of a connection and not written back.
static struct owed { char *at; size_t n; } owed[65536];

static void echo(int fd)
{
	struct owed *o = &owed[fd];
	for (;;) {
		ssize_t r;
		if (o->n == 0) {
			r = read(fd, buffer, sizeof buffer);
			if (r < 0 && errno == EAGAIN)
				return;
			if (r <= 0) {
				close(fd);
				return;
			}
			ssize_t w = write(fd, buffer, (size_t)r);
			if (w < 0 && errno != EAGAIN)
				die("write");
			w = w < 0 ? 0 : w;
			if (w == r)
				continue;
			o->n = (size_t)(r - w);
			o->at = malloc(o->n);
			memcpy(o->at, buffer + w, o->n);
			watch(fd, EPOLLOUT, EPOLL_CTL_MOD);
		} else {
			r = write(fd, o->at, o->n);
			if (r < 0 && errno == EAGAIN)
				return;
			if (r < 0)
				die("write");
			o->n -= (size_t)r;
			memmove(o->at, o->at + r, o->n);
			if (o->n > 0)
				continue;
			free(o->at);
			watch(fd, EPOLLIN, EPOLL_CTL_MOD);
		}
	}
}

static int serve(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 4096) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0)
		die("listen");
	printf("port %d\n", ntohs(a.sin_port));
	fflush(stdout);
	watch(l, EPOLLIN, EPOLL_CTL_ADD);
	watch(0, EPOLLIN, EPOLL_CTL_ADD);
	for (;;) {
		struct epoll_event got[64];
		int k = epoll_wait(epoll, got, 64, -1);
		for (int i = 0; i < k; i++) {
			int fd = got[i].data.fd, s;
			if (fd == 0)
				return 0;
			if (fd != l) {
				echo(fd);
				continue;
			}
			while ((s = accept4(l, NULL, NULL, SOCK_NONBLOCK)) >= 0)
				watch(s, EPOLLIN, EPOLL_CTL_ADD);
		}
	}
}

// A connection of the client.
static struct { int fd; uint32_t rounds; uint64_t sent, got, end; } conn[MOST];
static int by_fd[65536];

static char byte(int c, uint64_t at) { return (char)(at * 7 + at / 4093 + (uint64_t)c * 13); }

static void push(int c)
{
	char b[PIECE];
	while (conn[c].sent < conn[c].end) {
		uint64_t left = conn[c].end - conn[c].sent;
		size_t n = left < sizeof b ? left : sizeof b;
		for (size_t i = 0; i < n; i++)
			b[i] = byte(c, conn[c].sent + i);
		ssize_t w = write(conn[c].fd, b, n);
		if (w < 0 && errno == EAGAIN)
			break;
		if (w < 0)
			die("write");
		conn[c].sent += (uint64_t)w;
	}
}

static void begin(int c, uint32_t rounds, uint64_t bytes)
{
	conn[c].rounds = rounds;
	conn[c].end += bytes;
	push(c);
}

// exchange does so many rounds of so many bytes on connections first to last - 1, so
// many at once.
static void exchange(int first, int last, int at_once, uint32_t rounds, uint64_t bytes)
{
	int next = first, running = 0;
	for (; next < last && running < at_once; running++)
		begin(next++, rounds, bytes);
	while (running > 0) {
		struct epoll_event got[64];
		int k = epoll_wait(epoll, got, 64, 20000);
		if (k <= 0)
			die("epoll_wait");
		for (int i = 0; i < k; i++) {
			int c = by_fd[got[i].data.fd];
			ssize_t r;
			while ((r = read(conn[c].fd, buffer, sizeof buffer)) > 0) {
				for (ssize_t j = 0; j < r; j++)
					if (buffer[j] != byte(c, conn[c].got + (uint64_t)j)) {
						fprintf(stderr, "crowd: connection %d, byte %llu is wrong\n", c, (unsigned long long)conn[c].got + (uint64_t)j);
						exit(1);
					}
				conn[c].got += (uint64_t)r;
				if (r < (ssize_t)sizeof buffer)
					break;
			}
			if (r == 0 || (r < 0 && errno != EAGAIN))
				die("read");
			if (conn[c].got < conn[c].end) {
				push(c);
			} else if (conn[c].rounds > 1) {
				begin(c, conn[c].rounds - 1, bytes);
			} else if (conn[c].rounds == 1) {
				conn[c].rounds = 0;
				if (next < last)
					begin(next++, rounds, bytes);
				else
					running--;
			}
		}
	}
}

static uint64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(int argc, char **argv)
{
	epoll = epoll_create1(0);
	if (argc == 2)
		return serve();
	if (argc != 6)
		return 1;
	int conns = atoi(argv[2]), busy = atoi(argv[3]), one = 1;
	uint32_t rounds = (uint32_t)atoi(argv[4]);
	uint64_t bytes = strtoull(argv[5], NULL, 10);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = htons((uint16_t)atoi(argv[1]))};
	for (int c = 0; c < conns; c++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
			die("connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		fcntl(fd, F_SETFL, O_NONBLOCK);
		conn[c].fd = fd;
		by_fd[fd] = c;
		watch(fd, EPOLLIN, EPOLL_CTL_ADD);
		exchange(c, c + 1, 1, WARM, SMALL);
	}
	if (bytes > 0)
		exchange(0, conns, TOGETHER, 1, bytes);
	exchange(0, conns, TOGETHER, WARM, SMALL); // two that missed each other look again after some calls
	exchange(conns - busy, conns, busy, rounds / 10 + 1, SMALL);
	uint64_t start = now();
	exchange(conns - busy, conns, busy, rounds, SMALL);
	printf("exchanged %llu\n", (unsigned long long)((now() - start) / rounds / (uint64_t)busy));
	fflush(stdout);
	while (read(0, buffer, 1) > 0)
		;
	return 0;
}
