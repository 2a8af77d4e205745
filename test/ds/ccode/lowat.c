// SPDX-License-Identifier: Apache-2.0
//
// SO_RCVLOWAT above what there is, while TCP takes no more: who waits is told all the same, or both sides wait for
// ever. A child writes much more than the lane and TCP hold, and its parent leaves some of what is there each time,
// asks for more than that, and waits for it by poll, epoll and select in turn.
//
//	lowat STEPS SEED
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "rng.h"

enum { ALL = 4 << 20, WRITE = 100000, BUFFER = 20000, EXCHANGES = 40, PATIENCE_S = 20 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "lowat: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void writes(const struct sockaddr_in *a)
{
	static char b[WRITE];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	for (int i = 0; i < EXCHANGES; i++)
		check(write(fd, b, 1) == 1 && read(fd, b, 1) == 1, "exchange");
	for (int left = ALL; left > 0;) {
		int n = left < WRITE ? left : WRITE;
		check(write(fd, b, (size_t)n) == n, "write");
		left -= n;
	}
	_exit(0);
}

static int waits(int fd, int set, int how)
{
	struct pollfd p = {fd, POLLIN, 0};
	struct epoll_event e;
	struct timeval t = {PATIENCE_S, 0};
	fd_set r;
	FD_ZERO(&r);
	FD_SET(fd, &r);
	switch (how) {
	case 0:
		return poll(&p, 1, PATIENCE_S * 1000);
	case 1:
		return epoll_wait(set, &e, 1, PATIENCE_S * 1000);
	default:
		return select(fd + 1, &r, NULL, NULL, &t);
	}
}

static int here(int fd)
{
	int n = 0;
	check(ioctl(fd, FIONREAD, &n) == 0, "FIONREAD");
	return n;
}

int main(int argc, char **argv)
{
	static char b[ALL];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int steps = argc == 3 ? atoi(argv[1]) : 0, buffer = BUFFER, status, early = 0, got = 0;
	struct rng r = rng_of(argc == 3 ? strtoull(argv[2], NULL, 10) : 0, 0, 0, 0);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(setsockopt(l, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer) == 0, "SO_RCVBUF");
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t child = fork();
	if (child == 0)
		writes(&a);
	int fd = accept(l, NULL, NULL), set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	check(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "accept");
	for (int i = 0; i < EXCHANGES; i++)
		check(read(fd, b, 1) == 1 && write(fd, b, 1) == 1, "exchange");
	usleep(300000); // so long nobody reads, and the writer leaves the lane
	for (int i = 0; i < steps && got < ALL / 2; i++) {
		int low = here(fd) + 1 + (int)rnd(&r, 3000);
		check(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low) == 0, "SO_RCVLOWAT");
		if (waits(fd, set, i % 3) != 1) {
			fprintf(stderr, "lowat: step %d: %d bytes are here, more than %d are to come, and nothing was told in %d s\n", i, here(fd), ALL / 2,
				PATIENCE_S);
			return 1;
		}
		int some = here(fd), most = some - (int)rnd(&r, 2000);
		early += some < low;
		ssize_t k = read(fd, b, most > 0 ? (size_t)most : 1);
		check(k > 0, "read");
		got += (int)k;
	}
	int one = 1;
	check(setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &one, sizeof one) == 0, "SO_RCVLOWAT");
	for (ssize_t k; (k = read(fd, b, sizeof b)) != 0; got += (int)k)
		check(k > 0, "read to the end");
	check(waitpid(child, &status, 0) == child && status == 0, "the writer");
	printf("%d bytes, %d times told of less than was asked for\n", got, early);
	return got == ALL ? 0 : 1;
}
