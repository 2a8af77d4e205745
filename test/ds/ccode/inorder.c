// SPDX-License-Identifier: Apache-2.0
//
// inorder: bytes come on several connections of an epoll set while nobody waits for them, and then on a new one,
// which goes by TCP, right before one that may have a lane. It says in how many rounds of the one and of the
// other epoll_wait told them in another order than they came in, and of how many; TCP does so in hardly any.
//
//	inorder [serve]	with serve, only the end that waits: it says its port, and a byte when a round of the one may
//			begin, and is told on stdin in which order bytes have been written
#include "rng.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CONNS = 24, WARM = 100, ROUNDS = 400 };

static char b[8];
static unsigned char order[CONNS]; // CONNS: no more in this round

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void shuffle(struct rng *r)
{
	for (int i = 0; i < CONNS; i++)
		order[i] = (unsigned char)i;
	for (int i = CONNS - 1; i > 0; i--) {
		uint32_t k = rnd(r, (uint32_t)i + 1);
		unsigned char was = order[i];
		order[i] = order[k];
		order[k] = was;
	}
	uint32_t n = rnd(r, 2) ? 2 : 2 + rnd(r, CONNS - 1);
	memset(order + n, CONNS, CONNS - n);
}

static int count(void)
{
	int n = 0;
	while (n < CONNS && order[n] < CONNS)
		n++;
	return n;
}

// beside takes a connection in each round, answers its first byte, and gets two then: from it, and from old.
static int beside(int set, int l, int old)
{
	int wrong = 0;
	struct epoll_event e = {EPOLLIN, {.u32 = CONNS}};
	check(epoll_ctl(set, EPOLL_CTL_ADD, l, &e) == 0, "epoll_ctl");
	for (int round = 0; round < ROUNDS; round++) {
		int s = -1, got = 0, first = -1;
		check(write(old, b, 1) == 1, "a round");
		while (got < 3) {
			check(epoll_wait(set, &e, 1, -1) == 1, "epoll_wait");
			if (e.data.u32 == CONNS) {
				e.data.u32 = CONNS + 1;
				check((s = accept(l, NULL, NULL)) >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, s, &e) == 0, "accept");
				continue;
			}
			check(read(e.data.u32 > CONNS ? s : old, b, 1) == 1, "read");
			if (got++ == 0)
				check(write(s, b, 1) == 1, "write");
			else if (got == 2)
				first = (int)e.data.u32;
		}
		wrong += first != CONNS + 1;
		close(s);
	}
	return wrong;
}

static void serve(int l, int go, int done, bool alone)
{
	int s[CONNS], wrong = 0, set = epoll_create1(0);
	struct epoll_event e[CONNS];
	for (int i = 0; i < CONNS; i++) {
		check((s[i] = accept(l, NULL, NULL)) >= 0, "accept");
		e[0] = (struct epoll_event){i % 3 ? EPOLLIN : EPOLLIN | EPOLLET, {.u32 = (uint32_t)i}};
		check(epoll_ctl(set, EPOLL_CTL_ADD, s[i], e) == 0, "epoll_ctl");
	}
	for (int got = 0; got < CONNS * WARM;)
		for (int k = epoll_wait(set, e, CONNS, -1); k-- > 0; got++)
			check(read(s[e[k].data.u32], b, 8) == 1 && write(s[e[k].data.u32], b, 1) == 1, "warm");
	for (int round = 0; round < ROUNDS; round++) {
		while (epoll_wait(set, e, CONNS, 0) > 0) // what is stale
			;
		check(write(done, b, 1) == 1 && read(go, order, sizeof order) == sizeof order, "go");
		bool ordered = true;
		for (int got = 0, n = count(); got < n;)
			for (int i = 0, k = epoll_wait(set, e, CONNS, -1); i < k; i++, got++) {
				ordered &= (int)e[i].data.u32 == order[got];
				check(read(s[e[i].data.u32], b, 8) == 1, "read");
			}
		wrong += !ordered;
	}
	printf("%d %d %d\n", wrong, alone ? 0 : beside(set, l, s[0]), ROUNDS);
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), go[2], done[2], c[CONNS];
	struct rng r = rng_of(1, 0, 0, 0);
	alarm(60);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, CONNS) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	if (argc > 1 && strcmp(argv[1], "serve") == 0) {
		printf("%d\n", ntohs(a.sin_port));
		fflush(stdout);
		serve(l, STDIN_FILENO, STDOUT_FILENO, true);
		return 0;
	}
	check(pipe(go) == 0 && pipe(done) == 0, "pipe");
	pid_t pid = fork();
	if (pid == 0) {
		serve(l, go[0], done[1], false);
		return 0;
	}
	for (int i = 0; i < CONNS; i++)
		check((c[i] = socket(AF_INET, SOCK_STREAM, 0)) >= 0 && connect(c[i], (struct sockaddr *)&a, n) == 0, "connect");
	for (int i = 0; i < WARM; i++)
		for (int k = 0; k < CONNS; k++)
			check(write(c[k], b, 1) == 1 && read(c[k], b, 1) == 1, "warm");
	for (int round = 0; round < ROUNDS; round++) {
		check(read(done[0], b, 1) == 1, "done");
		shuffle(&r);
		for (int i = 0; i < count(); i++)
			check(write(c[order[i]], b, 1) == 1, "write");
		check(write(go[1], order, sizeof order) == sizeof order, "go");
	}
	for (int round = 0; round < ROUNDS; round++) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		check(read(c[0], b, 1) == 1 && connect(s, (struct sockaddr *)&a, n) == 0, "another");
		check(write(s, b, 1) == 1 && read(s, b, 1) == 1, "a first one");
		check(write(s, b, 1) == 1 && write(c[0], b, 1) == 1, "both");
		while (read(s, b, 1) > 0)
			;
		close(s);
	}
	int status;
	check(waitpid(pid, &status, 0) == pid && status == 0, "the server");
	return 0;
}
