// SPDX-License-Identifier: Apache-2.0
//
// For told.c: the other end of a connection, and threads that sleep on this one.
#ifndef TOLD_H
#define TOLD_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 300, AT_LEAST = 100, PIECE = 40, PATIENCE = 15000, A_WHILE = 30, MOST = 1 << 20, CHUNK = 30000 }; // ms

#define ET_BOTH (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET)

static char bytes[MOST];

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "told: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void say(const char *form, ...)
{
	va_list l;
	va_start(l, form);
	vprintf(form, l);
	va_end(l);
}

static long ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void nap(int ms) { usleep((unsigned)ms * 1000); }

static void check(bool ok, const char *what)
{
	if (!ok)
		die(what);
}

// The other end: reads (count, or all there is until told otherwise), writes, shuts down.

struct peer {
	pid_t pid;
	int ask, answer; // pipes
};

struct order {
	char what;
	size_t n;
};

static uint8_t pattern(size_t at) { return (uint8_t)(at * 2654435761u >> 13); }

static _Noreturn void serve(int fd, int orders, int answers)
{
	struct order o;
	size_t in = 0;
	while (read(orders, &o, sizeof o) == sizeof o) {
		ssize_t k;
		size_t all = o.n;
		switch (o.what) {
		case 'r':
			for (; o.n > 0; o.n -= (size_t)k) {
				if ((k = read(fd, bytes, o.n < MOST ? o.n : MOST)) <= 0)
					break;
				for (ssize_t i = 0; i < k; i++)
					check((uint8_t)bytes[i] == pattern(in++), "other bytes came");
			}
			all -= o.n;
			break;
		case 'w':
			for (size_t i = 0; i < o.n && i < MOST; i++)
				bytes[i] = 'w';
			for (; o.n > 0; o.n -= (size_t)k)
				if ((k = write(fd, bytes, o.n < MOST ? o.n : MOST)) <= 0)
					break;
			break;
		case 's':
			shutdown(fd, SHUT_WR);
			break;
		}
		if (write(answers, &all, sizeof all) != sizeof all)
			break;
	}
	_exit(0);
}

// peer_do has the other end do something, and waits for it.
static size_t peer_do(struct peer *p, char what, size_t n)
{
	struct order o = {.what = what, .n = n};
	size_t done;
	check(write(p->ask, &o, sizeof o) == sizeof o && read(p->answer, &done, sizeof done) == sizeof done, "the other end");
	return done;
}

static void peer_end(struct peer *p)
{
	close(p->ask);
	close(p->answer);
	kill(p->pid, SIGKILL);
	waitpid(p->pid, NULL, 0);
}

static void receive(int fd, size_t n)
{
	for (ssize_t k; n > 0; n -= (size_t)k)
		if ((k = read(fd, bytes, n < MOST ? n : MOST)) <= 0)
			die("read");
}

static size_t written; // of this process's end, for the pattern

// pair makes a connection with another process that is on a lane if it can be, and non-blocking. On a
// busy machine many rounds may be over before the library had its turns.
static int pair(struct peer *p)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int one = 1, small = 65536, ask[2], answer[2], l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	setsockopt(l, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
	setsockopt(l, SOL_SOCKET, SO_SNDBUF, &small, sizeof small);
	check(l >= 0 && bind(l, (struct sockaddr *)&at, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&at, &n) == 0 &&
		      pipe(ask) == 0 && pipe(answer) == 0, "listen");
	p->pid = fork(); // which prints nothing, so that what is said here is a line
	if (p->pid == 0) {
		close(ask[1]);
		close(answer[0]);
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
		check(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, "connect");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		long begun = ms();
		for (int i = 0; !bytes[0]; i++) {
			bytes[0] = i >= ROUNDS && ms() - begun >= AT_LEAST; // the last
			check(write(fd, bytes, PIECE) == PIECE, "write");
			receive(fd, PIECE);
		}
		close(l);
		serve(fd, ask[0], answer[1]);
	}
	int fd = accept(l, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	do {
		receive(fd, PIECE);
		check(write(fd, bytes, PIECE) == PIECE, "write");
	} while (!bytes[0]);
	bytes[0] = 0;
	close(l);
	close(ask[0]);
	close(answer[1]);
	p->ask = ask[1];
	p->answer = answer[0];
	fcntl(fd, F_SETFL, O_NONBLOCK);
	written = 0;
	return fd;
}

// put writes n bytes of the pattern, as many as there is room for.
static size_t put(int fd, size_t n)
{
	static uint8_t out[CHUNK];
	size_t done = 0;
	while (done < n) {
		size_t k = n - done < CHUNK ? n - done : CHUNK;
		for (size_t i = 0; i < k; i++)
			out[i] = pattern(written + i);
		ssize_t r = write(fd, out, k);
		if (r <= 0)
			break;
		written += (size_t)r;
		done += (size_t)r;
	}
	return done;
}

// acked is how many bytes the other end's kernel has taken.
static uint64_t acked(int fd)
{
	uint64_t info[16] = {0}; // the last is tcpi_bytes_acked, which netinet/tcp.h does not have everywhere
	socklen_t n = sizeof info;
	check(getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &n) == 0, "TCP_INFO");
	return info[15];
}

// fill writes until there is no room. It says if that went by TCP, where a full connection has room again
// when it likes.
static size_t fill(int fd)
{
	uint64_t before = acked(fd);
	size_t all = 0, n;
	do { // TCP has more room when the other end's kernel has taken some
		n = put(fd, 1u << 30);
		all += n;
		nap(10);
	} while (n > 0);
	if (acked(fd) - before > all / 4)
		say(" by TCP");
	return all;
}

static void drain(int fd)
{
	while (read(fd, bytes, MOST) > 0)
		;
}

// Those who sleep.

struct sleeper {
	pthread_t t;
	char how; // e: epoll_wait, p: poll, s: select, r: read, w: write
	int fd;
	uint32_t want;
	size_t n;
	atomic_bool back;
	long got;
	uint32_t events;
	int error;
};

static void *sleeps(void *arg)
{
	struct sleeper *s = arg;
	struct epoll_event e[8] = {0};
	struct pollfd p = {s->fd, (short)s->want, 0};
	fd_set set;
	switch (s->how) {
	case 'e':
		s->got = epoll_wait(s->fd, e, 8, -1);
		s->events = e[0].events;
		break;
	case 'p':
		s->got = poll(&p, 1, -1);
		s->events = (uint32_t)p.revents;
		break;
	case 's':
		FD_ZERO(&set);
		FD_SET(s->fd, &set);
		s->got = s->want & EPOLLIN ? select(s->fd + 1, &set, NULL, NULL, NULL) : select(s->fd + 1, NULL, &set, NULL, NULL);
		s->events = s->want;
		break;
	case 'r':
		s->got = read(s->fd, malloc(s->n), s->n);
		break;
	case 'w':
		s->got = write(s->fd, calloc(1, s->n), s->n);
		break;
	}
	s->error = s->got < 0 ? errno : 0;
	s->back = true;
	return NULL;
}

static bool soon;

static struct sleeper *begin(char how, int fd, uint32_t want, size_t n)
{
	struct sleeper *s = calloc(1, sizeof *s); // never freed: it may sleep for good
	s->how = how;
	s->fd = fd;
	s->want = want;
	s->n = n;
	check(pthread_create(&s->t, NULL, sleeps, s) == 0, "thread");
	nap(soon ? 2 : A_WHILE);
	return s;
}

// still sleeps again if it was told of something that is over.
static struct sleeper *still(struct sleeper *s)
{
	for (int i = 0; i < 5 && s->back; i++)
		s = begin(s->how, s->fd, s->want, s->n);
	return s;
}

static bool told(struct sleeper *s)
{
	for (int i = 0; i < PATIENCE / 5 && !s->back; i++)
		nap(5);
	return s->back;
}

static const char *names(uint32_t e)
{
	static char text[64];
	snprintf(text, sizeof text, "%s%s%s%s", e & EPOLLIN ? "+in" : "", e & EPOLLOUT ? "+out" : "", e & EPOLLHUP ? "+hup" : "", e & EPOLLERR ? "+err" : "");
	return text;
}

static void say_told(const char *who, struct sleeper *s)
{
	if (!told(s))
		say(" %s: NOT TOLD", who);
	else if (s->got < 0)
		say(" %s: %s", who, strerrorname_np(s->error));
	else
		say(" %s: told%s", who, names(s->events));
}

static int set_of(int fd, uint32_t events)
{
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = events, .data.fd = fd};
	check(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	return set;
}

static void ctl(int set, int op, int fd, uint32_t events)
{
	struct epoll_event e = {.events = events, .data.fd = fd};
	check(epoll_ctl(set, op, fd, &e) == 0, "epoll_ctl");
}

// now is what a set tells without waiting.
static uint32_t now(int set)
{
	struct epoll_event e;
	return epoll_wait(set, &e, 1, 0) == 1 ? e.events : 0;
}

static void clear(int set)
{
	struct epoll_event e[8];
	for (int i = 0; i < 4 && epoll_wait(set, e, 8, i == 3 ? 20 : 0) > 0; i++)
		;
}

#endif
