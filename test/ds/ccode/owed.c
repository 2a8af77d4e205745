// SPDX-License-Identifier: Apache-2.0
//
// Bytes that go back to TCP, which has no room for them, while their writer makes no call for the connection:
//
//	owed sleep|read|poll|epoll|close
//
// The writer fills a lane, and waits for ever in one call for something else, or closes the connection. The reader starts
// a program that inherits the connection and reads it by TCP (with close in steps, which take longer than a peer waits
// that takes nothing): all of it, as it would without lanes, to standard output. The program is linked with the library,
// so that the writer's TCP can be kept from getting a larger buffer. Exit status: 0, or 1.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel.h"
#include "family.h"
#include "narrow.h"
#include "real.h"

enum { EXCHANGES = 12, BYTES = 200 << 10, LEAST = 16 << 10, PATIENCE = 60 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "owed: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void exchange(int fd, int first)
{
	char x = 'x';
	for (int i = 0; i < EXCHANGES; i++)
		check(first ? write(fd, &x, 1) == 1 && read(fd, &x, 1) == 1 : read(fd, &x, 1) == 1 && write(fd, &x, 1) == 1, "exchange");
}

// waits for what never comes.
static void waits(const char *how, int nothing, int fd)
{
	struct pollfd p = {nothing, POLLIN, 0};
	struct epoll_event ev = {.events = EPOLLIN};
	char x;
	if (strcmp(how, "close") == 0) {
		for (int queued = 0; queued < LEAST / 2; usleep(1000))
			check(real.ioctl(fd, TIOCOUTQ, &queued) == 0, "ioctl");
		check(close(fd) == 0, "close");
	}
	if (strcmp(how, "sleep") == 0 || strcmp(how, "close") == 0)
		sleep(2 * PATIENCE);
	else if (strcmp(how, "read") == 0)
		check(read(nothing, &x, 1) == 1, "read");
	else if (strcmp(how, "poll") == 0)
		poll(&p, 1, -1);
	int set = epoll_create1(0);
	check(epoll_ctl(set, EPOLL_CTL_ADD, nothing, &ev) == 0 && epoll_wait(set, &ev, 1, -1) >= 0, "epoll");
	check(0, "the wait has ended");
}

static void writer(const char *how, const char *port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(port)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	static char bytes[BYTES];
	int fd = socket(AF_INET, SOCK_STREAM, 0), nothing[2];
	check(narrow(fd, LEAST) && connect(fd, (struct sockaddr *)&a, sizeof a) == 0 && pipe(nothing) == 0, "connect");
	exchange(fd, 1);
	real.setsockopt = stingy;
	check(write(fd, bytes, BYTES) == BYTES && family_channel_next(NULL) != NULL, "the lane");
	waits(how, nothing[0], fd);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char port[8], most[16], byte;
	int status;
	check(argc == 2 || argc == 3, "usage");
	alarm(PATIENCE);
	if (argc == 3)
		writer(argv[1], argv[2]);
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(narrow(l, LEAST) && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	snprintf(most, sizeof most, "%d", BYTES - 1);
	pid_t peer = fork();
	if (peer == 0) {
		execl(argv[0], argv[0], argv[1], port, (char *)NULL);
		_exit(127);
	}
	int fd = accept(l, NULL, NULL);
	check(fd >= 0, "accept");
	exchange(fd, 0);
	check(read(fd, &byte, 1) == 1, "read"); // all is on the lane
	usleep(100000);
	pid_t heir = fork();
	if (heir == 0) {
		dup2(fd, 0);
		if (strcmp(argv[1], "close") == 0)
			execlp("sh", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep .2; head -c 25600; done", (char *)NULL);
		execlp("head", "head", "-c", most, (char *)NULL);
		_exit(127);
	}
	check(waitpid(heir, &status, 0) == heir, "waitpid");
	kill(peer, SIGKILL);
	return status != 0;
}
