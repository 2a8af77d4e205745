// SPDX-License-Identifier: Apache-2.0
//
// borrow has one thread sleep in epoll_wait for each byte of a child, while another
// thread duplicates a connection and closes the copy, over and over, which makes a
// library look at all sets. Who sleeps must wake for each byte nevertheless.
//
// It prints how many bytes came; a library that loses a wake-up stands still.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { rounds = 20000 };

static atomic_bool over;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int connected(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	return fd;
}

static void play(const struct sockaddr_in *a)
{
	char b = 1;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	int fd = connected(a), other = connected(a);
	for (int i = 0; i < rounds; i++)
		check(write(fd, &b, 1) == 1 && read(fd, &b, 1) == 1, "ping");
	close(other);
	close(fd);
	_exit(0);
}

static void *copies(void *arg)
{
	while (!over)
		check(close(dup(*(int *)arg)) == 0, "close");
	return NULL;
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), status = 1;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 2) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t child = fork();
	if (child == 0)
		play(&a);
	int fd = accept(l, NULL, NULL), other = accept(l, NULL, NULL), set = epoll_create1(0), bytes = 0;
	struct epoll_event e = {.events = EPOLLIN | EPOLLET};
	check(fd >= 0 && other >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	pthread_t t;
	check(pthread_create(&t, NULL, copies, &other) == 0, "pthread_create");
	for (ssize_t r = 1; r != 0;) {
		char b;
		check(epoll_wait(set, &e, 1, -1) == 1, "epoll_wait");
		while ((r = recv(fd, &b, 1, MSG_DONTWAIT)) == 1) {
			bytes++;
			check(write(fd, &b, 1) == 1, "pong");
		}
	}
	over = true;
	pthread_join(t, NULL);
	check(waitpid(child, &status, 0) == child && status == 0, "child");
	printf("%d bytes\n", bytes);
	return bytes == rounds ? 0 : 1;
}
