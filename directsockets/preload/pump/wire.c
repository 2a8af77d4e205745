// Sockets, clocks, and the bytes that are sent.
#define _GNU_SOURCE
#include "pump.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

char *pattern;
struct run run;

void fail(const char *what)
{
	fprintf(stderr, "pump: %s: %s\n", what, strerror(errno));
	exit(1);
}

void wrong(const char *what)
{
	fprintf(stderr, "pump: wrong data: %s\n", what);
	exit(1);
}

uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

int all(int fd, void *to, size_t n)
{
	char *b = to;
	while (n > 0) {
		ssize_t r = read(fd, b, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return 0;
		b += r;
		n -= (size_t)r;
	}
	return 1;
}

int put(int fd, const void *from, size_t n)
{
	const char *b = from;
	while (n > 0) {
		ssize_t w = write(fd, b, n);
		if (w < 0 && errno != EINTR)
			return 0;
		if (w > 0) {
			b += w;
			n -= (size_t)w;
		}
	}
	return 1;
}

int fits(uint64_t size, uint64_t memory)
{
	return size >= 1 && (memory ? memory <= ROOM && size <= memory && memory % size == 0 : size <= LARGEST);
}

void make_pattern(uint64_t memory)
{
	uint64_t x = 0x9e3779b97f4a7c15, n = memory > PERIOD + LARGEST ? memory : PERIOD + LARGEST;
	pattern = malloc(n);
	if (!pattern)
		fail("memory");
	for (size_t i = 0; i < PERIOD; i++) { // xorshift64
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pattern[i] = (char)(x >> 32);
	}
	for (size_t i = PERIOD; i < n; i++)
		pattern[i] = pattern[i - PERIOD];
}

int differs(const char *b, size_t n, uint64_t at, int every)
{
	size_t k = n < ENDS ? n : ENDS;
	if (!every)
		return memcmp(b, pattern + at % PERIOD, k) != 0 || memcmp(b + n - k, pattern + (at + n - k) % PERIOD, k) != 0;
	for (; n > 0; b += k, at += k, n -= k) {
		k = n < PERIOD ? n : PERIOD;
		if (memcmp(b, pattern + at % PERIOD, k) != 0)
			return 1;
	}
	return 0;
}

int open_socket(void)
{
	int fd = socket(with.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("socket");
	return fd;
}

void no_delay(int fd)
{
	int one = 1;
	if (with.at.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

int open_connection(char mode)
{
	struct hello h = {.mode = (uint32_t)mode, .check = (uint32_t)with.check, .size = with.size, .rounds = mode == 'c' ? with.rounds : with.memory};
	int fd = open_socket();
	while (connect(fd, (struct sockaddr *)&with.at, with.length) < 0)
		if (errno != EINTR && errno != EAGAIN) // a full queue of AF_UNIX says EAGAIN
			fail("connect");
	no_delay(fd);
	if (!put(fd, &h, sizeof h))
		fail("write");
	return fd;
}

void count(uint64_t ns)
{
	int shift = ns < 128 ? 0 : 63 - __builtin_clzll(ns) - 7;
	run.histogram[(uint64_t)shift * 128 + (ns >> shift)]++;
	run.counted++;
}
