// SPDX-License-Identifier: Apache-2.0
//
// One process has both ends of a connection, and connects to a listener before it writes to that:
//
//	causal poll|select
//
// Who is told of the bytes is told of the listener, too, as an FTP client relies on whose server connects
// to it and then says so. Exit status: 0, or 1.
#include <arpa/inet.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/select.h>
#include <unistd.h>

enum { WARM = 100, ROUNDS = 300 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static int listening(struct sockaddr_in *a)
{
	socklen_t n = sizeof *a;
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(fd, (struct sockaddr *)a, n) == 0 && listen(fd, 1) == 0 && getsockname(fd, (struct sockaddr *)a, &n) == 0, "listen");
	return fd;
}

static int connected(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	return fd;
}

// told asks about both: a bit for each.
static int told(int selects, int bytes, int listener)
{
	if (!selects) {
		struct pollfd p[2] = {{bytes, POLLIN, 0}, {listener, POLLIN, 0}};
		check(poll(p, 2, 0) >= 0, "poll");
		return (p[0].revents ? 1 : 0) | (p[1].revents ? 2 : 0);
	}
	fd_set in;
	FD_ZERO(&in);
	FD_SET(bytes, &in);
	FD_SET(listener, &in);
	check(select((bytes > listener ? bytes : listener) + 1, &in, NULL, NULL, &(struct timeval){0, 0}) >= 0, "select");
	return (FD_ISSET(bytes, &in) ? 1 : 0) | (FD_ISSET(listener, &in) ? 2 : 0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a;
	char x = 'x';
	check(argc == 2, "usage");
	int l = listening(&a), bytes = connected(&a), s = accept(l, NULL, NULL), missed = 0, rounds = 0;
	for (int i = 0; i < WARM; i++)
		check(write(s, &x, 1) == 1 && read(bytes, &x, 1) == 1 && write(bytes, &x, 1) == 1 && read(s, &x, 1) == 1, "exchange");
	for (int i = 0; i < ROUNDS; i++) {
		int listener = listening(&a), d = connected(&a);
		check(write(s, &x, 1) == 1, "write");
		int what = told(strcmp(argv[1], "select") == 0, bytes, listener);
		rounds += what != 0;
		missed += what == 1;
		check(read(bytes, &x, 1) == 1, "read");
		close(d);
		close(listener);
	}
	if (missed || 2 * rounds < ROUNDS)
		fprintf(stderr, "causal: told in %d rounds of %d, in %d without the listener\n", rounds, ROUNDS, missed);
	return missed || 2 * rounds < ROUNDS;
}
