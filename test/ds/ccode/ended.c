// SPDX-License-Identifier: Apache-2.0
//
// ended: threads wait, each in its epoll set, again and again, while the processes end with which these had
// connections, and these are closed: what they arm there may be gone just then.
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { SETS = 2, ROUNDS = 30, EXCHANGES = 200 };

static struct sockaddr_in at = {.sin_family = AF_INET};
static int listener, set[SETS], turn[2];
static atomic_int waits[SETS];

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		_exit(1);
	}
}

static void *wait_again(void *arg)
{
	struct epoll_event ev;
	for (int i = (int)(intptr_t)arg;; waits[i]++)
		check(epoll_wait(set[i], &ev, 1, 1) >= 0, "epoll_wait");
	return arg;
}

// pass waits until each thread has waited so often more.
static void pass(int n)
{
	for (int i = 0; i < SETS; i++)
		for (int been = waits[i]; waits[i] < been + n;)
			usleep(1000);
}

// be_peer waits for its turn, talks until it has a lane, and stays.
static void be_peer(void)
{
	char b;
	pid_t us = getpid();
	check(read(turn[0], &b, 1) == 1, "wait for the turn");
	int s = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(s, (struct sockaddr *)&at, sizeof at) == 0, "connect");
	check(write(s, &us, sizeof us) == sizeof us, "write");
	for (int i = 0; i < EXCHANGES; i++)
		check(write(s, "x", 1) == 1 && read(s, &b, 1) == 1, "exchange");
	pause();
}

// peer has the next one talk.
static pid_t peer(int *fd)
{
	char b;
	pid_t who;
	check(write(turn[1], "!", 1) == 1 && (*fd = accept(listener, NULL, NULL)) >= 0, "accept");
	check(read(*fd, &who, sizeof who) == sizeof who, "read");
	for (int i = 0; i < EXCHANGES; i++)
		check(read(*fd, &b, 1) == 1 && write(*fd, "y", 1) == 1, "exchange with a peer");
	struct epoll_event ev = {.events = EPOLLIN | EPOLLET, .data.fd = *fd};
	for (int i = 0; i < SETS; i++)
		check(epoll_ctl(set[i], EPOLL_CTL_ADD, *fd, &ev) == 0, "epoll_ctl");
	return who;
}

static void end(pid_t peer)
{
	kill(peer, SIGKILL);
	check(waitpid(peer, NULL, 0) == peer, "waitpid");
}

int main(void)
{
	socklen_t n = sizeof at;
	pthread_t t;
	int fd, stays;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &n) == 0, "listen");
	check(pipe(turn) == 0, "pipe");
	for (int i = 0; i < 1 + ROUNDS; i++) // while there is nothing that they could inherit
		if (fork() == 0) {
			be_peer();
			_exit(0);
		}
	for (int i = 0; i < SETS; i++)
		set[i] = epoll_create1(EPOLL_CLOEXEC);
	pid_t first = 0, now;
	for (int r = 0; r < ROUNDS; r++) {
		now = peer(&fd);
		if (r == 0) { // the others come first where it arms
			first = peer(&stays);
			for (int i = 0; i < SETS; i++)
				check(pthread_create(&t, NULL, wait_again, (void *)(intptr_t)i) == 0, "pthread_create");
		}
		pass(2); // it has armed for both
		for (int i = 0; i < SETS; i++)
			check(epoll_ctl(set[i], EPOLL_CTL_DEL, fd, NULL) == 0, "epoll_ctl to take a member out");
		pass(2); // and has nothing of this one any more but its habit
		end(now);
		usleep((useconds_t)(r * 100));
		close(fd);
	}
	end(first);
	return 0;
}
