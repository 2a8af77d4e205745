// SPDX-License-Identifier: Apache-2.0
//
// interrupt says how signal handlers end calls that wait.
//
// A child answers each byte after 150 ms. The parent sends one, sets a timer of
// 30 ms, and waits for the answer in each kind of call, with a handler that has
// SA_RESTART and with one that has not. It prints what the call gave. Two processes, so that the ends can use a lane.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { rounds = 100, answer_us = 150000, timer_us = 30000 };

static volatile sig_atomic_t ran;
static void restarting(int signo) { ran += signo == SIGALRM; }
static void breaking(int signo) { ran += signo == SIGALRM; }

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void answer(const struct sockaddr_in *a)
{
	char b[64] = {0};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	for (int i = 0; i < rounds; i++)
		check(write(fd, b, 64) == 64 && read(fd, b, 64) == 64, "ping");
	while (read(fd, b, 1) == 1) {
		usleep(answer_us);
		check(write(fd, b, 1) == 1, "answer");
	}
	_exit(0);
}

static int wait_in(int kind, int fd, int set)
{
	char b;
	struct pollfd p = {.fd = fd, .events = POLLIN};
	struct epoll_event e;
	fd_set s;
	switch (kind) {
	case 0:
		return (int)read(fd, &b, 1);
	case 1:
		return (int)recv(fd, &b, 1, MSG_WAITALL);
	case 2:
		return poll(&p, 1, -1);
	case 3:
		return epoll_wait(set, &e, 1, -1);
	}
	FD_ZERO(&s);
	FD_SET(fd, &s);
	return select(fd + 1, &s, NULL, NULL, NULL);
}

int main(void)
{
	static const char *const kinds[] = {"read", "recv waitall", "poll", "epoll", "select"};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char b[64] = {0};
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t child = fork();
	if (child == 0)
		answer(&a);
	int fd = accept(l, NULL, NULL);
	for (int i = 0; i < rounds; i++)
		check(read(fd, b, 64) == 64 && write(fd, b, 64) == 64, "pong");
	int set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	check(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	signal(SIGUSR1, breaking); // another handler, of the other kind
	for (int kind = 0; kind < 5; kind++)
		for (int restart = 0; restart < 2; restart++) {
			void (*f)(int) = restart ? restarting : breaking;
			struct sigaction sa = {.sa_handler = f, .sa_flags = restart ? SA_RESTART : 0}, is;
			check(sigaction(SIGALRM, &sa, NULL) == 0 && sigaction(SIGALRM, NULL, &is) == 0 && is.sa_handler == f, "sigaction");
			struct itimerval t = {.it_value.tv_usec = timer_us};
			ran = 0;
			check(write(fd, b, 1) == 1 && setitimer(ITIMER_REAL, &t, NULL) == 0, "ask");
			int r = wait_in(kind, fd, set), why = errno;
			printf("%s, %s: %s, %d handler\n", kinds[kind], restart ? "restarting" : "breaking",
				r < 0 ? strerrorname_np(why) : "ready", ran);
			while (!(kind < 2 && r == 1) && read(fd, b, 1) < 0)
				check(errno == EINTR, "read");
		}
	close(fd);
	check(waitpid(child, NULL, 0) == child, "wait");
	return 0;
}
