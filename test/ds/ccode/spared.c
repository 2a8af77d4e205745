// SPDX-License-Identifier: Apache-2.0
//
// spared counts how often the library asks the kernel about the end of a connection when a read
// finds nothing. Built with -DCOUNTER it is what is preloaded behind the library and counts.
//
// A child sends a byte every now and then. The parent is told by epoll_wait or poll, lets some time
// pass, as a server does that serves others first, and reads until there is nothing. Then it reads
// without being told. At last the child is killed, which has to be known at once.
#include <dlfcn.h>
#include <poll.h>

#ifdef COUNTER

int polls;

int poll(struct pollfd *fds, nfds_t n, int timeout)
{
	static int (*next)(struct pollfd *, nfds_t, int);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "poll");
	polls++;
	return next(fds, n, timeout);
}

#else

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { warm = 200, rounds = 200, later_us = 150, soon_us = 200, due = 3 * rounds / 4, few = rounds / 4 }; // asked anew after some 400 us

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %m\n", what);
	exit(1);
}

static long now_us(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void later(void)
{
	for (long begun = now_us(); now_us() - begun < later_us;)
		;
}

static void drain(int fd, int want)
{
	char b[8];
	ssize_t got = 0, r;
	while ((r = recv(fd, b, sizeof b, MSG_DONTWAIT)) > 0)
		got += r;
	check(r < 0 && errno == EAGAIN, "read until there is nothing");
	check(got == want, "bytes");
}

// serve is so many rounds; it returns how often the kernel was asked. A round in which it lost its
// CPU, and so read long after it was told, does not count.
static int serve(int fd, int set, int n, const int *polls)
{
	int asked = 0;
	while (n > 0) {
		struct pollfd p = {fd, POLLIN, 0};
		struct epoll_event e;
		check(write(fd, "", 1) == 1, "write");
		check((set < 0 ? poll(&p, 1, -1) : epoll_wait(set, &e, 1, -1)) == 1, "wait");
		long told = now_us();
		int before = *polls;
		later();
		drain(fd, 1);
		if (now_us() - told < soon_us) {
			asked += *polls - before;
			n--;
		}
	}
	return asked;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int *polls = dlsym(RTLD_DEFAULT, "polls"), l = socket(AF_INET, SOCK_STREAM, 0);
	check(polls != NULL, "no counter is preloaded");
	check(bind(l, (struct sockaddr *)&a, sizeof a) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t child = fork();
	if (child == 0) {
		char b;
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
		while (read(fd, &b, 1) == 1)
			check(write(fd, &b, 1) == 1, "answer");
		_exit(0);
	}
	int fd = accept(l, NULL, NULL), set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	check(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "accept");
	serve(fd, set, warm, polls);
	int by_epoll = serve(fd, set, rounds, polls);
	int by_poll = serve(fd, -1, rounds, polls);
	usleep(10000);
	int before = *polls;
	for (int i = 0; i < rounds; i++) {
		drain(fd, 0);
		later();
	}
	int untold = *polls - before;
	check(write(fd, "", 1) == 1 && epoll_wait(set, &e, 1, -1) == 1, "wait");
	drain(fd, 1);
	kill(child, SIGKILL);
	check(epoll_wait(set, &e, 1, -1) == 1, "the end");
	char b;
	check(recv(fd, &b, 1, MSG_DONTWAIT) == 0, "read of the end");
	check(waitpid(child, NULL, 0) == child, "wait");
	printf("told by epoll %d, by poll %d, untold %d\n", by_epoll, by_poll, untold);
	if (by_epoll > few || by_poll > few || untold < due) {
		fprintf(stderr, "of %d reads that find nothing, at most %d and at least %d are to ask\n", rounds, few, due);
		return 1;
	}
	return 0;
}

#endif
