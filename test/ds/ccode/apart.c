// SPDX-License-Identifier: Apache-2.0
//
// A thread of the server, or of the client, gets a table of descriptors of its own in the middle of a connection
// and closes the descriptor there, or puts another in its place. The others go on, and so does one more connection.
//
//	apart HOW WHO	HOW: unshare, raw (the same by syscall(2)), range (close_range with CLOSE_RANGE_UNSHARE), dup (dup2 over it)
//			WHO: server, client
//
// Exit status: 0, or 1 with what is wrong on stderr.
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXCHANGES = 300, APART = 100, LONGEST = 60000, UNSHARE_RANGE = 2 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "apart: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static const char *how;
static int descriptor;

static void *apart(void *nothing)
{
	if (strcmp(how, "range") == 0) {
		check(syscall(SYS_close_range, descriptor, descriptor, UNSHARE_RANGE) == 0, "close_range");
		return nothing;
	}
	check((strcmp(how, "raw") == 0 ? (int)syscall(SYS_unshare, CLONE_FILES) : unshare(CLONE_FILES)) == 0, "unshare");
	check((strcmp(how, "dup") == 0 ? dup2(2, descriptor) == descriptor : close(descriptor) == 0), "close");
	return nothing;
}

static void take_apart(int fd)
{
	pthread_t t;
	descriptor = fd;
	check(pthread_create(&t, NULL, apart, NULL) == 0 && pthread_join(t, NULL) == 0, "thread");
}

static size_t length(int i) { return i % 10 == 9 ? LONGEST : 1 + (size_t)i % 200; }

static void whole(int fd, char *b, size_t n)
{
	for (size_t k = 0; k < n;) {
		ssize_t r = recv(fd, b + k, n - k, 0);
		check(r > 0, "recv");
		k += (size_t)r;
	}
}

static void serve(int fd, int apart_too)
{
	static char b[LONGEST];
	for (int i = 0; i < EXCHANGES; i++) {
		whole(fd, b, length(i));
		if (i == APART && apart_too)
			take_apart(fd);
		check(send(fd, b, length(i), 0) == (ssize_t)length(i), "send");
	}
	check(recv(fd, b, 1, 0) == 0, "no end");
	close(fd);
}

static void ask(const struct sockaddr_in *a, int apart_too)
{
	static char b[LONGEST], back[LONGEST];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	for (int i = 0; i < EXCHANGES; i++) {
		memset(b, i, length(i));
		check(send(fd, b, length(i), 0) == (ssize_t)length(i), "send");
		if (i == APART && apart_too)
			take_apart(fd);
		whole(fd, back, length(i));
		check(memcmp(b, back, length(i)) == 0, "other bytes");
	}
	check(shutdown(fd, SHUT_WR) == 0 && recv(fd, b, 1, 0) == 0, "no end");
	close(fd);
}

int main(int argc, char **argv)
{
	if (argc != 3)
		return 1;
	how = argv[1];
	int server = strcmp(argv[2], "server") == 0, status;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(l >= 0 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 4) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t child = fork();
	check(child >= 0, "fork");
	alarm(60);
	for (int connection = 0; connection < 2; connection++) {
		if (child == 0) {
			ask(&a, connection == 0 && !server);
			continue;
		}
		int fd = accept(l, NULL, NULL);
		check(fd >= 0, "accept");
		serve(fd, connection == 0 && server);
	}
	if (child == 0)
		return 0;
	check(waitpid(child, &status, 0) == child, "waitpid");
	return status != 0;
}
