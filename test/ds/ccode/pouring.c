// SPDX-License-Identifier: Apache-2.0
//
// A connection over which bytes pour from one process to another, and then pass back and forth.
// Made a library and preloaded, it stands in front of the C library's ioctl: there is always time for
// more to come before FIONREAD is answered.
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { POUR = 100000, PIECE = 100, MUCH = 64 << 10, ROUNDS = 100, STEP = 20, MOST = 1000 }; // STEP in us

int ioctl(int fd, unsigned long request, ...)
{
	va_list more;
	va_start(more, request);
	int *answer = va_arg(more, void *), before = 0;
	va_end(more);
	if (request != FIONREAD)
		return (int)syscall(SYS_ioctl, fd, request, answer);
	syscall(SYS_ioctl, fd, FIONREAD, &before);
	for (int i = 0; i < MOST; i++) {
		int r = (int)syscall(SYS_ioctl, fd, FIONREAD, answer);
		if (r < 0 || *answer != before)
			return r;
		usleep(STEP);
	}
	return 0;
}

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "pouring: %s: %s\n", what, strerror(errno));
	exit(1);
}

int main(void)
{
	static char bytes[MUCH];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), fd, status;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t pid = fork();
	if (pid == 0) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(fd, (struct sockaddr *)&a, n) == 0, "connect");
		for (int i = 0; i < POUR; i++)
			check(write(fd, bytes, PIECE) == PIECE, "pour");
		for (int i = 0; i < ROUNDS; i++)
			check(read(fd, bytes, 1) == 1 && write(fd, bytes, 1) == 1, "answer");
		exit(0);
	}
	check((fd = accept(l, NULL, NULL)) >= 0, "accept");
	for (ssize_t left = POUR * PIECE, got; left > 0; left -= got)
		check((got = read(fd, bytes, MUCH)) > 0, "read");
	for (int i = 0; i < ROUNDS; i++)
		check(write(fd, bytes, 1) == 1 && read(fd, bytes, 1) == 1, "ask");
	check(waitpid(pid, &status, 0) == pid && status == 0, "the other process");
	return 0;
}
