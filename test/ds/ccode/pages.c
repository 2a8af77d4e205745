// SPDX-License-Identifier: Apache-2.0
//
// What a lane costs a forked process in memory: a server forks for each connection, and the child says how many page
// faults it had in answering.
//
//	pages CONNECTIONS
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXCHANGES = 40 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "pages: %s: %s\n", what, strerror(errno));
	exit(1);
}

static long faults(void)
{
	struct rusage r;
	check(getrusage(RUSAGE_SELF, &r) == 0, "getrusage");
	return r.ru_minflt;
}

static void asks(struct sockaddr_in a, int connections)
{
	char x = 'x';
	for (int i = 0; i < connections; i++) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
		for (int k = 0; k < EXCHANGES; k++)
			check(write(fd, &x, 1) == 1 && read(fd, &x, 1) == 1, "exchange");
		close(fd);
	}
}

static void answers(int fd)
{
	long before = faults();
	char x;
	while (read(fd, &x, 1) == 1)
		check(write(fd, &x, 1) == 1, "write");
	printf("%ld page faults\n", faults() - before);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int connections = argc == 2 ? atoi(argv[1]) : 0, status;
	alarm(60);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t client = fork();
	if (client == 0) {
		asks(a, connections);
		_exit(0);
	}
	for (int i = 0; i < connections; i++) {
		int fd = accept(l, NULL, NULL);
		check(fd >= 0, "accept");
		pid_t child = fork();
		if (child == 0) {
			close(l);
			answers(fd);
			exit(0);
		}
		close(fd);
		check(waitpid(child, &status, 0) == child && status == 0, "the answering process");
	}
	check(waitpid(client, &status, 0) == client && status == 0, "the client");
	return 0;
}
