// SPDX-License-Identifier: Apache-2.0
//
// exits: processes end while threads of theirs read byte by byte what a peer does not stop to send, write what it
// does not read, and wait in poll. Until they are gone their sockets are not closed to them.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, EXCHANGES = 300, OTHERS = 300, READ = 0, WRITTEN, POLLED, ALL };

static struct sockaddr_in at = {.sin_family = AF_INET};
static int listener, fd[ALL];

static void check(int ok, const char *what)
{
	if (!ok) {
		fprintf(stderr, "exits: %s: %s\n", what, strerror(errno));
		_exit(1);
	}
}

static void *goes_on(void *arg)
{
	static char rest[1 << 16];
	char b;
	ssize_t n = 1;
	int it = (int)(intptr_t)arg;
	struct pollfd p = {fd[it], POLLIN, 0};
	while (n > 0 && !(p.revents & POLLNVAL))
		n = it == READ ? read(fd[it], &b, 1) : it == WRITTEN ? send(fd[it], rest, sizeof rest, MSG_NOSIGNAL) : poll(&p, 1, -1);
	// What the peer does about the end of this process may be first.
	check((n == 0 && it == READ) || (n < 0 && errno == ECONNRESET) || (n < 0 && errno == EPIPE), "while the process ends");
	pause();
	return arg;
}

static void serve(int round)
{
	char b;
	pthread_t t;
	for (int it = 0; it < ALL; it++) {
		check((fd[it] = accept(listener, NULL, NULL)) >= 0, "accept");
		for (int i = 0; i < EXCHANGES; i++)
			check(read(fd[it], &b, 1) == 1 && write(fd[it], "y", 1) == 1, "exchange");
	}
	int ends[2];
	check(pipe(ends) == 0, "pipe");
	pid_t child = round % 3 ? fork() : -1; // which has them, too: to the end, or no more
	if (child == 0) {
		close(ends[1]);
		_exit(round % 3 == 1 && read(ends[0], &b, 1));
	}
	check(round % 3 != 2 || waitpid(child, NULL, 0) == child, "waitpid");
	for (int i = 0; i < OTHERS; i++) // which are closed after these
		check(socket(AF_INET, SOCK_STREAM, 0) >= 0, "socket");
	for (int it = 0; it < ALL; it++)
		check(pthread_create(&t, NULL, goes_on, (void *)(intptr_t)it) == 0, "pthread_create");
	usleep(10000);
	exit(0);
}

static void talk(void)
{
	char b;
	int s[ALL];
	for (int it = 0; it < ALL; it++) {
		check((s[it] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(s[it], (struct sockaddr *)&at, sizeof at) == 0, "connect");
		for (int i = 0; i < EXCHANGES; i++)
			check(write(s[it], "x", 1) == 1 && read(s[it], &b, 1) == 1, "exchange");
	}
	while (send(s[READ], "z", 1, MSG_NOSIGNAL) == 1)
		usleep(1);
}

int main(void)
{
	socklen_t n = sizeof at;
	int bad = 0, status;
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(listener, (struct sockaddr *)&at, n) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &n) == 0, "listen");
	for (int r = 0; r < ROUNDS; r++) {
		pid_t peer = fork();
		if (peer == 0) {
			talk();
			_exit(0);
		}
		pid_t server = fork();
		if (server == 0)
			serve(r);
		for (int i = 0; i < 2; i++) {
			pid_t who = wait(&status);
			if (status != 0)
				fprintf(stderr, "round %d: the %s has ended with %#x\n", r, who == peer ? "peer" : "server", (unsigned)status);
			bad |= status;
		}
	}
	return bad != 0;
}
