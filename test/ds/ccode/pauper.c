// SPDX-License-Identifier: Apache-2.0
//
// Two processes whose one window is taken by a connection that nobody reads. On each of many others
// both ends write as much as TCP holds before they read. Exit status: 0, or 1 where one waits
// for ever.
#include <arpa/inet.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNECTIONS = 200, MUCH = 60000, WARM = 40, MOST = 6, PATIENCE = 10 };

static char bytes[4 << 20];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "pauper: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void receive(int fd, size_t n)
{
	for (ssize_t k; n > 0; n -= (size_t)k)
		check((k = recv(fd, bytes, n, 0)) > 0, "recv");
}

static void exchange(int fd, int first, int times)
{
	while (times-- > 0) {
		if (first)
			check(send(fd, "x", 1, 0) == 1, "send");
		receive(fd, 1);
		if (!first)
			check(send(fd, "x", 1, 0) == 1, "send");
	}
}

static int join(int listener, const struct sockaddr_in *a)
{
	int fd = listener >= 0 ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM, 0);
	check(fd >= 0 && (listener >= 0 || connect(fd, (const struct sockaddr *)a, sizeof *a) == 0), "connect");
	return fd;
}

static void play(int listener, const struct sockaddr_in *a)
{
	int first = listener < 0, rich = join(listener, a);
	exchange(rich, first, WARM);
	usleep(100000);
	exchange(rich, first, WARM);
	while (send(rich, bytes, sizeof bytes, MSG_DONTWAIT) > 0)
		;
	for (int i = 0; i < CONNECTIONS; i++) {
		int fd = join(listener, a);
		alarm(PATIENCE);
		exchange(fd, first, 1 + i % MOST);
		check(send(fd, bytes, MUCH, 0) == MUCH, "send");
		receive(fd, MUCH);
		close(fd);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	if (argc == 2) {
		a.sin_port = htons((uint16_t)atoi(argv[1]));
		play(-1, &a);
		return 0;
	}
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), status;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t pid = fork();
	if (pid == 0) {
		char port[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		execl(argv[0], argv[0], port, (char *)NULL);
		_exit(127);
	}
	play(l, &a);
	check(waitpid(pid, &status, 0) == pid && status == 0, "the other");
	return 0;
}
