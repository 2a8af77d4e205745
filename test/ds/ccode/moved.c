// SPDX-License-Identifier: Apache-2.0
//
// A program that moves to another network namespace and has connections of both: each is on a lane, proven in
// its own. Once it has moved it makes one with the same ends as the first.
//
//	moved
#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

enum { EXCHANGES = 40 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "moved: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void up(void)
{
	int fd = socket(AF_INET, SOCK_DGRAM, 0);
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	check(ioctl(fd, SIOCSIFFLAGS, &lo) == 0, "lo");
	close(fd);
}

// pair makes a connection between these two ports, 0: any.
static void pair(int fd[2], struct sockaddr_in a[2])
{
	int one = 1, l = socket(AF_INET, SOCK_STREAM, 0);
	socklen_t n = sizeof *a;
	fd[0] = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(l, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	check(bind(l, (struct sockaddr *)&a[1], n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a[1], &n) == 0, "listen");
	check(bind(fd[0], (struct sockaddr *)&a[0], n) == 0 && connect(fd[0], (struct sockaddr *)&a[1], n) == 0, "connect");
	check(getsockname(fd[0], (struct sockaddr *)&a[0], &n) == 0 && (fd[1] = accept(l, NULL, NULL)) >= 0, "accept");
	close(l);
}

static void talk(const int fd[2], char x)
{
	for (int i = 0; i < EXCHANGES; i++) {
		char is = 0;
		check(write(fd[0], &x, 1) == 1 && read(fd[1], &is, 1) == 1 && is == x, "there");
		check(write(fd[1], &x, 1) == 1 && read(fd[0], &is, 1) == 1 && is == x, "back");
	}
}

int main(void)
{
	struct sockaddr_in a[2] = {{.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}};
	int first[2], second[2];
	alarm(60);
	pair(first, a);
	talk(first, 'a');
	check(unshare(CLONE_NEWNET) == 0, "a network namespace");
	up();
	pair(second, a);
	talk(second, 'b');
	talk(first, 'c');
	return 0;
}
