// SPDX-License-Identifier: Apache-2.0
//
// slow moves bytes over a loopback interface that is slow, so that those which went by TCP
// come long after the first ones of the lane. The reader asks how many are there (FIONREAD)
// and reads: that must give some, and all in order.
//
// It prints how many times it asked. Exit status: 0, or 1 with what is wrong on stderr.
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TOTAL = 256 << 10, PIECE = 4096, PART = 1024, BUFFER = 8192, PATIENCE = 20 };

static uint8_t b[PIECE];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static uint8_t byte(size_t at) { return (uint8_t)(at * 2654435761u >> 13); }

static void writer(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0), small = BUFFER;
	check(setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &small, sizeof small) == 0 && connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
	for (size_t at = 0; at < TOTAL; at += PIECE) {
		for (size_t i = 0; i < PIECE; i++)
			b[i] = byte(at + i);
		check(send(fd, b, PIECE, 0) == PIECE, "send");
	}
	shutdown(fd, SHUT_WR);
	check(read(fd, b, 1) == 0, "the end");
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	if (argc == 2)
		writer((uint16_t)atoi(argv[1]));
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, status, asked = 0;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t pid = fork();
	if (pid == 0) {
		char port[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		execl(argv[0], argv[0], port, (char *)NULL);
		_exit(1);
	}
	alarm(PATIENCE);
	check((fd = accept(l, NULL, NULL)) >= 0, "accept");
	for (size_t at = 0;;) {
		struct pollfd p = {fd, POLLIN, 0};
		int here = 1;
		check(poll(&p, 1, -1) == 1, "poll");
		for (; here > 0; asked++) {
			ssize_t r = recv(fd, b, PART, MSG_DONTWAIT);
			check(r >= 0, asked ? "recv after FIONREAD" : "recv");
			for (ssize_t i = 0; i < r; i++, at++)
				check(b[i] == byte(at), "the right bytes");
			if (r == 0) {
				check(at == TOTAL, "all bytes");
				close(fd);
				check(waitpid(pid, &status, 0) == pid && status == 0, "the writer");
				printf("asked %d times\n", asked);
				return 0;
			}
			check(ioctl(fd, FIONREAD, &here) == 0, "FIONREAD");
		}
	}
}
