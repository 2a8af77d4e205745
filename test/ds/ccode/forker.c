// SPDX-License-Identifier: Apache-2.0
//
// forker read|poll|epoll: a handler forks that has interrupted such a call, and the call goes on in both processes, or
// is made again where it gives EINTR. Each of them reads a byte and closes; then the peer reads the end.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 100 };

static char b[1];
static int go[2];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void forks(int signo)
{
	signal(signo, SIG_DFL);
	alarm(30);
	if (fork() > 0)
		check(write(go[1], b, 1) == 1, "go");
}

static void waits(const char *how, int s, int set)
{
	struct epoll_event e;
	int r = 1;
	do {
		if (strcmp(how, "poll") == 0)
			r = poll(&(struct pollfd){s, POLLIN, 0}, 1, -1);
		else if (strcmp(how, "epoll") == 0)
			r = epoll_wait(set, &e, 1, -1);
	} while (r < 0 && errno == EINTR);
	check(r == 1, how);
}

int main(int argc, char **argv)
{
	const char *how = argc > 1 ? argv[1] : "read";
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), set = epoll_create1(0), status;
	struct epoll_event e = {.events = EPOLLIN};
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0 && pipe(go) == 0, "listen");
	pid_t peer = fork();
	if (peer == 0) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		close(l);
		alarm(30);
		check(connect(s, (struct sockaddr *)&a, n) == 0, "connect");
		for (int i = 0; i < ROUNDS; i++)
			check(read(s, b, 1) == 1 && write(s, b, 1) == 1, "a round");
		check(read(go[0], b, 1) == 1, "go");
		for (int i = 0; i < 2; i++) {
			usleep(100000); // they are asleep
			check(write(s, b, 1) == 1 && read(s, b, 1) == 1, "one of both");
		}
		check(read(s, b, 1) == 0, "the end");
		return 0;
	}
	int s = accept(l, NULL, NULL);
	check(s >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, s, &e) == 0, "accept");
	for (int i = 0; i < ROUNDS; i++) {
		check(write(s, b, 1) == 1, "write");
		waits(how, s, set);
		check(read(s, b, 1) == 1, "a round");
	}
	signal(SIGALRM, forks);
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 50000}}, NULL);
	waits(how, s, set);
	check(read(s, b, 1) == 1 && write(s, b, 1) == 1 && close(s) == 0, "what comes then");
	while (wait(&status) > 0)
		check(status == 0, "a child");
	return 0;
}
