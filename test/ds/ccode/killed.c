// SPDX-License-Identifier: Apache-2.0
//
// killed.c is a server that forks for each connection, and each child is killed after
// so many round trips. Usage:
//
//	killed serve N		says its port, serves N, says so, and waits for the end of its input
//	killed ask PORT N	is the client
#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TRIPS = 60, BYTES = 600 };

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

static void serve(int n)
{
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
		pid_t pid = fork();
		if (pid < 0)
			die("fork");
		if (pid == 0) {
			for (int k = 0; k < TRIPS; k++)
				if (!trip(fd, 0))
					exit(1);
			raise(SIGKILL);
		}
		close(fd);
		int status;
		if (waitpid(pid, &status, 0) != pid || !WIFSIGNALED(status))
			die("a child was not killed");
	}
	printf("served\n");
	fflush(stdout);
	getchar();
}

static void ask(int port, int n)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	for (int i = 0; i < n; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0), trips = 0;
		if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
			die("connect");
		while (trip(fd, 1))
			trips++;
		if (trips != TRIPS) {
			fprintf(stderr, "connection %d ended after %d round trips\n", i, trips);
			exit(1);
		}
		close(fd);
	}
}

int main(int argc, char **argv)
{
	if (argc == 3 && strcmp(argv[1], "serve") == 0)
		serve(atoi(argv[2]));
	else if (argc == 4 && strcmp(argv[1], "ask") == 0)
		ask(atoi(argv[2]), atoi(argv[3]));
	else
		return 2;
	return 0;
}
