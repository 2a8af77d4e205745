// SPDX-License-Identifier: Apache-2.0
//
// listed: a process forks that has waited in an epoll set. In the child a thread asks that set all the time, while
// others sleep on a connection once and end. With musl mutexes that were held across the fork, and made anew in the
// child, stay in a list of the thread, which then breaks.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 100, THREADS = 1000 };

static char b[1];
static int s;
static _Atomic int ended;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *sleeps(void *unused)
{
	struct pollfd p = {s, POLLIN, 0};
	check(poll(&p, 1, 1) == 0, "poll");
	return unused;
}

static void *starts(void *unused)
{
	for (int i = 0; i < THREADS; i++) {
		pthread_t t;
		check(pthread_create(&t, NULL, sleeps, NULL) == 0 && pthread_join(t, NULL) == 0, "a thread");
	}
	ended = 1;
	return unused;
}

static int in_child(int set)
{
	struct epoll_event e;
	pthread_t t;
	alarm(60);
	check(pthread_create(&t, NULL, starts, NULL) == 0, "a thread");
	while (!ended)
		check(epoll_wait(set, &e, 1, 0) == 0, "epoll_wait");
	check(pthread_join(t, NULL) == 0, "join");
	return 0;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status, set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t peer = fork();
	if (peer == 0) {
		int c = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(c, (struct sockaddr *)&a, n) == 0, "connect");
		while (read(c, b, 1) == 1)
			check(write(c, b, 1) == 1, "write");
		return 0;
	}
	s = accept(l, NULL, NULL);
	check(s >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, s, &e) == 0, "accept");
	for (int i = 0; i < ROUNDS; i++)
		check(write(s, b, 1) == 1 && epoll_wait(set, &e, 1, -1) == 1 && read(s, b, 1) == 1, "a round");
	pid_t child = fork();
	if (child == 0)
		return in_child(set);
	check(waitpid(child, &status, 0) == child, "waitpid");
	close(s);
	check(status == 0, "the child");
	check(waitpid(peer, &status, 0) == peer && status == 0, "the peer");
	return 0;
}
