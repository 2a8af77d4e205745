// SPDX-License-Identifier: Apache-2.0
//
// killed.c is a server that forks for each connection. Each child is killed after so many
// round trips, or lives as long as the connection. Usage:
//
//	killed serve N		says its port, serves N, says so, and waits for the end of its input
//	killed keep N		likewise, and no child is killed
//	killed late N		likewise, and keeps its copies of the connections until it has all N
//	killed clone N		as serve, but children are cloned by a system call, do one round trip,
//				and live until the parent has done the others
//	killed ask PORT N	is the client of serve and clone
//	killed crowd PORT N	that of keep and late, which has all connections open until the end of its input,
//				and does as many round trips on each again for each line of it
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIPS = 200, BYTES = 600 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

// trip moves one message there and back; false at the end.
static int trip(int fd, int first)
{
	char b[BYTES] = {0};
	if (first && send(fd, b, sizeof b, MSG_NOSIGNAL) != sizeof b)
		return 0;
	if (recv(fd, b, sizeof b, MSG_WAITALL) != sizeof b)
		return 0;
	return first || send(fd, b, sizeof b, MSG_NOSIGNAL) == sizeof b;
}

// cloned has a child, of which the C library does not know, do the first round trip.
static void cloned(int fd)
{
	int up[2];
	char one = 1;
	if (pipe(up) < 0)
		die("pipe");
	pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
	if (pid < 0)
		die("clone");
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		if (!trip(fd, 0) || write(up[1], &one, 1) != 1)
			_exit(1);
		for (;;)
			pause();
	}
	if (read(up[0], &one, 1) != 1)
		die("the child");
	for (int k = 1; k < TRIPS; k++)
		if (!trip(fd, 0))
			die("a round trip");
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	close(up[0]);
	close(up[1]);
	close(fd);
}

static void wait_for_end(const char *say)
{
	puts(say);
	fflush(stdout);
	getchar();
}

static void serve(int n, int keep, int late, int clones)
{
	int *fds = calloc((size_t)n, sizeof *fds);
	if (!fds)
		die("calloc");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t len = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, sizeof a) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &len) < 0)
		die("listen");
	printf("%d\n", ntohs(a.sin_port));
	fflush(stdout);
	for (int i = 0; i < n; i++) {
		int fd = accept(l, NULL, NULL);
		if (fd < 0)
			die("accept");
		if (clones) {
			cloned(fd);
			continue;
		}
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			for (int k = 0; late && k < i; k++)
				close(fds[k]);
			for (int k = 0; k < TRIPS || keep; k++)
				if (!trip(fd, 0))
					exit(keep ? 0 : 1);
			raise(SIGKILL);
		}
		fds[i] = fd;
		if (!late)
			close(fd);
		int status;
		if (keep)
			continue;
		if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
			die("a child was not killed");
	}
	for (int i = 0; late && i < n; i++)
		close(fds[i]);
	free(fds);
	for (int status; keep && wait(&status) > 0;)
		if (status)
			die("a child");
	wait_for_end("served");
}

static void asked(int n, int trips)
{
	if (trips == TRIPS)
		return;
	fprintf(stderr, "connection %d ended after %d round trips\n", n, trips);
	exit(1);
}

static void again(const int *fds, int n)
{
	for (int i = 0; i < n; i++) {
		int trips = 0;
		while (trips < TRIPS && trip(fds[i], 1))
			trips++;
		asked(i, trips);
	}
}

static void ask(int port, int n, int keep)
{
	int *fds = calloc((size_t)n, sizeof *fds);
	if (!fds)
		die("calloc");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int i = 0; i < n; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), trips = 0;
		if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
			die("connect");
		while ((trips < TRIPS || !keep) && trip(fd, 1))
			trips++;
		asked(i, trips);
		fds[i] = fd;
		if (!keep)
			close(fd);
	}
	while (keep) {
		puts("asked");
		fflush(stdout);
		if (getchar() == EOF)
			break;
		again(fds, n);
	}
	free(fds);
}

int main(int argc, char **argv)
{
	int late = argc > 1 && strcmp(argv[1], "late") == 0;
	int keep = late || (argc > 1 && (strcmp(argv[1], "keep") == 0 || strcmp(argv[1], "crowd") == 0));
	if (argc == 3)
		serve(atoi(argv[2]), keep, late, strcmp(argv[1], "clone") == 0);
	else if (argc == 4)
		ask(atoi(argv[2]), atoi(argv[3]), keep);
	else
		return 2;
	return 0;
}
