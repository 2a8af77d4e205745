// SPDX-License-Identifier: Apache-2.0
//
// jumper: a timer's handler leaves reads from a connection, and writes to it, by longjmp, however far they
// have got. The calls that follow give what they would give had nothing been left, and the peer of who closes then
// hears of it at once.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { JUMPS = 500, CLOSES = 400, ROUNDS = 100, BLOCK = 1 << 18 };

static char b[BLOCK], d[BLOCK];
static sigjmp_buf out;
static void jumps(int signo) { siglongjmp(out, signo); }

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void timer(long us)
{
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, us}}, NULL);
}

static void *drain(void *s)
{
	while (read(*(int *)s, d, sizeof d) > 0)
		;
	return NULL;
}

// closed is the peer of closes. Of the calls that are left some are about to begin, or to end.
static void closed(const struct sockaddr_in *a)
{
	int late = 0;
	for (int i = 0; i < CLOSES; i++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		struct pollfd p = {s, POLLIN, 0};
		check(connect(s, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
		for (int k = 0; k < ROUNDS; k++)
			check(read(s, b, 1) == 1 && write(s, b, 1) == 1, "a round");
		late += late < CLOSES / 20 && poll(&p, 1, 1000) == 0;
		close(s);
	}
	errno = ETIMEDOUT;
	check(late < CLOSES / 20, "the end");
}

static void closes(int l)
{
	timer_t t;
	check(timer_create(CLOCK_MONOTONIC, &(struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGALRM}, &t) == 0, "timer_create");
	for (volatile int i = 0; i < CLOSES; i++) {
		volatile int s = accept(l, NULL, NULL);
		check(s >= 0, "accept");
		for (int k = 0; k < ROUNDS; k++)
			check(write(s, b, 1) == 1 && read(s, b, 1) == 1, "a round");
		if (sigsetjmp(out, 1) == 0) {
			check(timer_settime(t, 0, &(struct itimerspec){.it_value = {0, 500 + 250 * (i % 200)}}, NULL) == 0, "timer_settime");
			check((i % 3 ? read(s, b, 1) : poll(&(struct pollfd){s, POLLIN, 0}, 1, -1)) && 0, "what is left by the handler");
		}
		check(close(s) == 0, "close");
	}
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t peer = fork();
	if (peer == 0) { // reads and writes without an end
		int s = socket(AF_INET, SOCK_STREAM, 0);
		pthread_t t;
		close(l);
		signal(SIGPIPE, SIG_IGN);
		check(connect(s, (struct sockaddr *)&a, n) == 0, "connect");
		for (int i = 0; i < ROUNDS; i++)
			check(read(s, b, 1) == 1 && write(s, b, 1) == 1, "a round");
		check(pthread_create(&t, NULL, drain, &s) == 0, "a thread");
		while (write(s, b, sizeof b) > 0)
			;
		closed(&a);
		_exit(0);
	}
	int s = accept(l, NULL, NULL);
	check(s >= 0, "accept");
	for (int i = 0; i < ROUNDS; i++)
		check(write(s, b, 1) == 1 && read(s, b, 1) == 1, "a round");
	signal(SIGALRM, jumps);
	for (volatile int i = 0; i < JUMPS; i++) {
		if (sigsetjmp(out, 1) == 0) {
			timer(200 + 7 * (i % 50));
			for (;;)
				check((i % 2 ? read(s, b, sizeof b) : write(s, b, sizeof b)) > 0, "what is left by the handler");
		}
		timer(0);
		for (int k = 0; k < 3; k++) {
			check(read(s, b, sizeof b) > 0, "read");
			check(write(s, b, sizeof b) > 0, "write");
		}
	}
	check(shutdown(s, SHUT_RDWR) == 0 && close(s) == 0, "close");
	closes(l);
	int status;
	check(waitpid(peer, &status, 0) == peer && status == 0, "the peer");
	return 0;
}
