// SPDX-License-Identifier: Apache-2.0
//
// A program that fills a connection and waits for room in poll, an epoll set, or a call that blocks, and
// a reader, a second process, that takes one byte at a time, and long for each:
//
//	crumbs poll|level|edge|block read|peek|backlog
//
// With peek it only looks, and takes nothing before that is over. With backlog the writer writes more than is read
// before they have found each other, so that there is much on TCP when it goes on by a lane.
// What it takes is not worth waking the writer for a long time. The last line is how often the writer slept.
// Exit status: 0, or 1 where the connection did not live.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 50, CRUMBS = 20000, PAUSE = 60, ALL = 4 << 20, PIECE = 32 << 10, SMALL = 400, FOUND = 1000 }; // PAUSE in us

static char bytes[PIECE];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "crumbs: %s: %s\n", what, strerror(errno));
	exit(1);
}

static int64_t now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * INT64_C(1000000) + t.tv_nsec / 1000;
}

static void reader(uint16_t port, int flags)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
	for (int i = 0; i < ROUNDS; i++)
		check(write(fd, "x", 1) == 1 && read(fd, bytes, 1) == 1, "exchange");
	for (int i = 0; i < CRUMBS; i++) {
		check(recv(fd, bytes, 1, flags) == 1 && (i != FOUND || write(fd, "x", 1) == 1), "read");
		for (int64_t end = now() + PAUSE; now() < end;) // a sleep would be too long
			;
	}
	for (ssize_t left = ALL - (flags ? 0 : CRUMBS), n; left > 0; left -= n)
		check((n = read(fd, bytes, PIECE)) > 0, "read");
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	check(argc >= 3, "usage");
	int backlog = strcmp(argv[2], "backlog") == 0, flags = strcmp(argv[1], "block") ? MSG_DONTWAIT : 0;
	if (argc > 3)
		reader((uint16_t)atoi(argv[3]), strcmp(argv[2], "peek") ? 0 : MSG_PEEK);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, status;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t pid = fork();
	if (pid == 0) {
		char port[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		execl(argv[0], argv[0], argv[1], argv[2], port, (char *)NULL);
		_exit(127);
	}
	check((fd = accept(l, NULL, NULL)) >= 0, "accept");
	ssize_t left = ALL;
	while (backlog && recv(fd, bytes, ROUNDS + 1, MSG_PEEK | MSG_DONTWAIT) <= ROUNDS) {
		check(write(fd, bytes, SMALL) == SMALL && usleep(PAUSE) == 0, "write");
		left -= SMALL;
	}
	for (int i = 0; i < ROUNDS; i++)
		check(read(fd, bytes, 1) == 1 && write(fd, "x", 1) == 1, "exchange");
	int set = epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event e = {.events = EPOLLOUT | (strcmp(argv[1], "edge") == 0 ? EPOLLET : 0u)};
	check(set >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll");
	while (left > 0) {
		ssize_t k = send(fd, bytes, left < PIECE ? (size_t)left : PIECE, flags);
		if (k > 0) {
			left -= k;
			continue;
		}
		check(errno == EAGAIN, "send");
		struct pollfd p = {.fd = fd, .events = POLLOUT};
		check((strcmp(argv[1], "poll") == 0 ? poll(&p, 1, -1) : epoll_wait(set, &e, 1, -1)) == 1, "wait");
	}
	struct rusage used;
	check(waitpid(pid, &status, 0) == pid && status == 0 && getrusage(RUSAGE_SELF, &used) == 0, "the reader");
	printf("%ld sleeps\n", used.ru_nvcsw);
	return 0;
}
