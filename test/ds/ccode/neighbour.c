// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A program that another user attacks by way of the fabric directory. A process with the library
// and one without play ping-pong on one connection after the other, so that the first has offers
// and a listener, looks for peers and takes what they send. With NEIGHBOUR_LANES in the environment both
// have it. Its standard output has a line for each connection.
//
//	neighbour
//
// It goes on until its standard input ends.
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <signal.h>
#include <unistd.h>

enum { rounds = 3000, bytes = 100 };

static void whole(int fd, char *b, int out)
{
	for (int at = 0; at < bytes;) {
		ssize_t n = out ? send(fd, b + at, (size_t)(bytes - at), MSG_NOSIGNAL) : recv(fd, b + at, (size_t)(bytes - at), 0);
		if (n <= 0)
			exit(0);
		at += (int)n;
	}
}

int main(int argc, char **argv)
{
	char b[bytes] = {0};
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	if (argc > 1) { // the one without the library
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;) {
			int fd = accept(atoi(argv[1]), NULL, NULL);
			for (int i = 0; i < rounds; i++) {
				whole(fd, b, 0);
				whole(fd, b, 1);
			}
			close(fd);
		}
	}
	int l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 8) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0)
		return 2;
	if (fork() == 0) {
		char number[12];
		snprintf(number, sizeof number, "%d", l);
		if (!getenv("NEIGHBOUR_LANES"))
			unsetenv("LD_PRELOAD");
		execl("/proc/self/exe", "neighbour", number, (char *)NULL);
		return 2;
	}
	for (struct pollfd p = {STDIN_FILENO, POLLIN, 0}; poll(&p, 1, 0) == 0;) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(fd, (struct sockaddr *)&a, n) < 0)
			return 2;
		for (int i = 0; i < rounds; i++) {
			whole(fd, b, 1);
			whole(fd, b, 0);
		}
		close(fd);
		if (puts("round") < 0 || fflush(stdout) != 0)
			return 2;
	}
	return 0;
}
