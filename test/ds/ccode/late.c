// SPDX-License-Identifier: Apache-2.0
//
// late has one connection whose ends find each other while one of them is stopped, so
// that the other has made all its calls before it is answered. From then on both only
// wait for events.
//
//	late          listens, says "port N", reads CALLS bytes, writes as many, says "answered"
//	late PORT     connects, writes CALLS bytes, says "wrote", waits for a line, reads, says "read"
//
// They end when their input does. Exit status: 0, or 1 with what is wrong on stderr.
#include <netinet/in.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CALLS = 40 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void say(const char *what, int number)
{
	printf("%s %d\n", what, number);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char byte = 0, bytes[CALLS];
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (argc == 1) {
		int l = fd;
		check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
		say("port", ntohs(a.sin_port));
		check((fd = accept(l, NULL, NULL)) >= 0 && recv(fd, bytes, CALLS, MSG_WAITALL) == CALLS, "accept");
		for (int i = 0; i < CALLS; i++)
			check(write(fd, &byte, 1) == 1, "write");
		say("answered", CALLS);
	} else {
		a.sin_port = htons((uint16_t)atoi(argv[1]));
		check(connect(fd, (struct sockaddr *)&a, n) == 0, "connect");
		for (int i = 0; i < CALLS; i++)
			check(write(fd, &byte, 1) == 1, "write");
		say("wrote", CALLS);
		check(read(0, &byte, 1) == 1, "the line");
		for (int i = 0; i < CALLS; i++)
			check(read(fd, &byte, 1) == 1, "read");
		say("read", CALLS);
	}
	struct epoll_event e = {.events = EPOLLIN}, got;
	int set = epoll_create1(0);
	check(epoll_ctl(set, EPOLL_CTL_ADD, 0, &e) == 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "epoll_ctl");
	while (epoll_wait(set, &got, 1, 1) <= 0)
		;
	return 0;
}
