// SPDX-License-Identifier: Apache-2.0
//
// A server with several threads that wait in one epoll set, its connections one-shot
// members of it, and clients in a second process:
//
//	pool SEED THREADS CLIENTS CONNS ROUNDS [et]
//
// A connection belongs to the thread that was told of it until that thread, or another
// to which it hands it, asks for the next event. So
//
//	an event for a connection that somebody has     two handle it at once: exit 1
//	no event for one that is ready                  its client waits for good
//
// Handlers read all or a part, wait at random before and after, and leave every fourth
// connection to another thread that asks for the next event later: so when a connection
// gets its lane it may be armed, or have fired, or be ready and not told yet. Each
// client has one connection after the other, sends up to three pieces at once and
// verifies what comes back. With a single client there is nothing on lanes when it gets its
// own, and the threads wait in the kernel's set.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CLIENTS = 8, MOST = 1024, PIECE = 200 };

static struct sockaddr_in at = {.sin_family = AF_INET};
static int set, listener, conns, rounds, later[2];
static uint32_t edge;
static unsigned seed;
static atomic_int taken, owner[MOST];

static atomic_bool over;

static _Noreturn void die(const char *what)
{
	while (over) // the process ends, and its connections
		pause();
	fprintf(stderr, "pool: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static unsigned rnd(unsigned *s, unsigned n)
{
	*s = *s * 1103515245 + 12345;
	return (*s >> 16) % n;
}

static void pause_sometimes(unsigned *s)
{
	unsigned p = rnd(s, 30);
	if (p == 0)
		usleep(rnd(s, 400));
	else if (p < 4)
		sched_yield();
}

static void prompt(int fd)
{
	int one = 1;
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// rearm lets go of a connection and asks for its next event.
static void rearm(int fd, int op)
{
	struct epoll_event ev = {.events = EPOLLIN | EPOLLONESHOT | edge, .data.fd = fd};
	owner[fd] = 0;
	if (epoll_ctl(set, op, fd, &ev) < 0)
		die("epoll_ctl");
}

static void handle(int fd, unsigned *s)
{
	char b[PIECE];
	pause_sometimes(s);
	ssize_t n = recv(fd, b, 1 + rnd(s, sizeof b), MSG_DONTWAIT);
	if (n == 0) {
		owner[fd] = 0; // before another connection gets the number
		close(fd);
		return;
	}
	if (n < 0)
		die("an event, but nothing to read"); // the connection was ready, and nobody else reads it
	if (send(fd, b, (size_t)n, 0) != n)
		die("send");
	pause_sometimes(s);
	if (rnd(s, 4) == 0 && write(later[1], &fd, sizeof fd) == sizeof fd)
		return;
	rearm(fd, EPOLL_CTL_MOD);
}

static void *serve(void *arg)
{
	unsigned s = seed * 100 + (unsigned)(uintptr_t)arg;
	for (;;) {
		struct epoll_event got[2];
		int n = epoll_wait(set, got, 1 + (int)rnd(&s, 2), rnd(&s, 8) ? -1 : (int)rnd(&s, 3));
		for (int i = 0; i < n; i++) {
			int fd = got[i].data.fd, new;
			if (fd == listener) {
				if ((new = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
					prompt(new);
					rearm(new, EPOLL_CTL_ADD);
				}
				continue;
			}
			if (atomic_exchange(&owner[fd], 1))
				die("a connection is told to two threads");
			handle(fd, &s);
		}
	}
	return NULL;
}

static void *rearm_later(void *arg)
{
	unsigned s = seed;
	int fd;
	while (read(later[0], &fd, sizeof fd) == sizeof fd) {
		pause_sometimes(&s);
		rearm(fd, EPOLL_CTL_MOD);
	}
	return arg;
}

static void converse(int fd, unsigned *s)
{
	char out[3 * PIECE], in[3 * PIECE];
	for (int r = 0; r < rounds; r++) {
		size_t n = 0, got = 0;
		for (unsigned pieces = 1 + rnd(s, 3); pieces > 0; pieces--) {
			size_t from = n;
			for (size_t k = 1 + rnd(s, PIECE); k > 0; k--)
				out[n++] = (char)rnd(s, 256);
			if (send(fd, out + from, n - from, 0) != (ssize_t)(n - from))
				die("send to the server");
			pause_sometimes(s);
		}
		while (got < n) {
			ssize_t k = recv(fd, in + got, n - got, 0);
			if (k <= 0)
				die("recv from the server");
			got += (size_t)k;
		}
		if (memcmp(in, out, n) != 0)
			die("other bytes came back");
	}
}

static void *ask(void *arg)
{
	unsigned s = seed * 1000 + (unsigned)(uintptr_t)arg;
	while (atomic_fetch_add(&taken, 1) < conns) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		prompt(fd);
		if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
			die("connect");
		converse(fd, &s);
		close(fd);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	socklen_t n = sizeof at;
	pthread_t t[CLIENTS];
	int status, clients;
	if (argc < 6)
		return 2;
	seed = (unsigned)atoi(argv[1]);
	clients = atoi(argv[3]);
	conns = atoi(argv[4]);
	rounds = atoi(argv[5]);
	edge = argc > 6 ? EPOLLET : 0;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
	if (bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 64) < 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &n) < 0)
		die("listen");
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < clients && i < CLIENTS; i++)
			pthread_create(&t[i], NULL, ask, (void *)(uintptr_t)i);
		for (int i = 0; i < clients && i < CLIENTS; i++)
			pthread_join(t[i], NULL);
		_exit(0);
	}
	struct epoll_event ev = {.events = EPOLLIN, .data.fd = listener};
	set = epoll_create1(EPOLL_CLOEXEC);
	if (pipe(later) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, listener, &ev) < 0)
		die("epoll_ctl");
	for (uintptr_t i = 0; i < (uintptr_t)atoi(argv[2]); i++)
		pthread_create(&t[0], NULL, serve, (void *)i);
	pthread_create(&t[0], NULL, rearm_later, NULL);
	if (waitpid(child, &status, 0) < 0 || status != 0)
		die("the clients failed");
	over = true;
	return 0;
}
