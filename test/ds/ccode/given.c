// SPDX-License-Identifier: Apache-2.0
//
// given accepts from a listener that it had before it called exec, as one that a service manager
// gives, on which SO_TIMESTAMP was set: what it accepts tells when bytes came, where recvmsg has
// room for that, also once its bytes go by a lane.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

enum { WARM = 200, SIZE = 100 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %m\n", what);
	exit(1);
}

static void exchange(int fd, int first)
{
	char b[SIZE] = {0};
	if (first)
		check(write(fd, b, SIZE) == SIZE, "write");
	check(recv(fd, b, SIZE, MSG_WAITALL) == SIZE, "recv");
	if (!first)
		check(write(fd, b, SIZE) == SIZE, "write");
}

static void client(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	char b[SIZE] = {0};
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	check(connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	for (int i = 0; i < WARM; i++)
		exchange(fd, 1);
	check(write(fd, b, SIZE) == SIZE, "the last write");
	check(read(fd, b, 1) == 0, "the end"); // it answers go_back meanwhile
	exit(0);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char number[16], b[SIZE], control[64];
	struct iovec iov = {b, SIZE};
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
	int on = 1, l = argc > 1 ? atoi(argv[1]) : socket(AF_INET, SOCK_STREAM, 0);
	if (argc == 1) {
		check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0, "listen");
		check(setsockopt(l, SOL_SOCKET, SO_TIMESTAMP, &on, sizeof on) == 0, "SO_TIMESTAMP");
		snprintf(number, sizeof number, "%d", l);
		execl("/proc/self/exe", argv[0], number, (char *)NULL);
		check(0, "exec");
	}
	check(getsockname(l, (struct sockaddr *)&a, &n) == 0, "getsockname");
	if (fork() == 0)
		client(&a);
	int fd = accept(l, NULL, NULL);
	check(fd >= 0, "accept");
	for (int i = 0; i < WARM; i++)
		exchange(fd, 0);
	check(recvmsg(fd, &h, MSG_WAITALL) == SIZE, "recvmsg");
	struct cmsghdr *m = CMSG_FIRSTHDR(&h);
	check(m && m->cmsg_level == SOL_SOCKET && m->cmsg_type == SCM_TIMESTAMP, "when it came");
	return 0;
}
