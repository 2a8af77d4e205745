// Many connections of one client.
#define _GNU_SOURCE
#include "pump.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

void step(const char *what)
{
	char byte;
	puts(what);
	fflush(stdout);
	if (!all(0, &byte, 1))
		exit(1);
}

struct one {
	int fd, waits;
	uint64_t number, since; // of the message that waits for an answer
};

static void send_one(struct one *c, char *message)
{
	size_t k = with.size < sizeof c->number ? with.size : sizeof c->number;
	memcpy(message, &c->number, k);
	c->since = now();
	c->waits = 1;
	if (!put(c->fd, message, with.size))
		fail("write");
}

static void take_one(struct one *c, const char *message, char *echo)
{
	size_t k = with.size < sizeof c->number ? with.size : sizeof c->number;
	if (!all(c->fd, echo, with.size))
		fail("the server did not answer");
	if (memcmp(echo, &c->number, k) != 0 || memcmp(echo + k, message + k, with.check ? with.size - k : 0) != 0)
		wrong("an answer is not what was sent");
	c->number++;
	c->waits = 0;
	if (c->since >= run.begin)
		count(now() - c->since);
}

struct sent crowd(void)
{
	struct sent s = {0};
	struct one *all_of = calloc(with.streams, sizeof *all_of);
	char *message = malloc(2 * with.size), *echo = message + with.size;
	struct epoll_event ready[BUSY];
	uint64_t next = 0;
	int set = epoll_create1(EPOLL_CLOEXEC);
	if (!all_of || !message || set < 0)
		fail("memory");
	memcpy(message, pattern, with.size);
	step("begun");
	run.begin = run.end = UINT64_MAX;
	for (uint64_t i = 0; i < with.streams; i++) {
		struct epoll_event e = {.events = EPOLLIN, .data.u64 = i};
		struct one *c = &all_of[i];
		c->fd = open_connection('e');
		c->number = i << 32;
		if (epoll_ctl(set, EPOLL_CTL_ADD, c->fd, &e) < 0)
			fail("epoll_ctl");
		for (int j = 0; j < KNOWN; j++) {
			send_one(c, message);
			while (epoll_wait(set, ready, 1, -1) < 1)
				;
			take_one(c, message, echo);
		}
	}
	step("opened");
	uint64_t start = now(), waiting = 0;
	run.begin = start + (uint64_t)(with.seconds * 1e8);
	run.end = start + (uint64_t)(with.seconds * 1.1e9);
	while (now() < run.end || run.counted == 0 || waiting > 0) {
		for (; waiting < BUSY && waiting < with.streams && (now() < run.end || run.counted == 0); waiting++) {
			while (all_of[next].waits)
				next = (next + 1) % with.streams;
			send_one(&all_of[next], message);
			next = (next + 1) % with.streams;
			s.bytes += with.size;
		}
		if (waiting == 0)
			continue; // the end came between two looks at the clock
		int n = epoll_wait(set, ready, BUSY, -1);
		for (int i = 0; i < n; i++, waiting--)
			take_one(&all_of[ready[i].data.u64], message, echo);
	}
	s.rate = (double)run.counted * 1e9 / (double)(now() - run.begin);
	return s; // the connections end with the program
}
