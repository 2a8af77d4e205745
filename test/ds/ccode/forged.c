// SPDX-License-Identifier: Apache-2.0
//
// forged has a peer send bytes on its lane, put a slot behind them that makes no sense, and
// die. Who learns of the death first, and reads then, gets the bytes and after them an end.
//
// Exit status: 0, 1 with what is wrong on stderr, 77 if there was no lane.
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 40, SIZE = 50, PATIENCE = 20, NO_LANE = 77 };

static char b[SIZE];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

// forge writes {~0, 16} as RMA_INFO into the first empty slot of the lane in use.
static int forge(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512], mode[8];
	for (unsigned long from, to; f && fgets(line, sizeof line, f);) {
		if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || strcmp(mode, "rw-s") || !strstr(line, "memfd:exn-ds-channel"))
			continue;
		const struct { uint64_t magic; uint32_t version, lanes, slots, window; } *head = (void *)from;
		for (uint32_t lane = 0; lane < head->lanes; lane++) {
			char *ring = (char *)from + 8192 + 256ul * head->lanes + 128ul * head->slots * lane;
			for (uint32_t i = 0; i < head->slots; i++) {
				uint64_t *slot = (uint64_t *)(ring + 128 * i);
				if (i == 0 && *slot == 0)
					break; // not in use
				if (*slot != 0)
					continue;
				slot[1] = ~0ull;
				slot[2] = 16;
				__atomic_store_n(slot, 1ull << 63 | 16ull << 38 | 3ull << 32, __ATOMIC_RELEASE);
				return 1;
			}
		}
	}
	return 0;
}

static void forger(uint16_t port, int pipe)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
	for (int i = 0; i < ROUNDS; i++)
		check(send(fd, b, SIZE, 0) == SIZE && recv(fd, b, SIZE, MSG_WAITALL) == SIZE, "ping");
	check(send(fd, b, SIZE, 0) == SIZE, "send");
	char done = (char)forge();
	check(write(pipe, &done, 1) == 1, "pipe");
	for (;;)
		pause();
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	if (argc == 3)
		forger((uint16_t)atoi(argv[1]), atoi(argv[2]));
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), fd, ends[2];
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0 && pipe(ends) == 0, "listen");
	pid_t pid = fork();
	if (pid == 0) {
		char port[8], out[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		snprintf(out, sizeof out, "%d", ends[1]);
		execl(argv[0], argv[0], port, out, (char *)NULL);
		_exit(1);
	}
	alarm(PATIENCE);
	check((fd = accept(l, NULL, NULL)) >= 0, "accept");
	for (int i = 0; i < ROUNDS; i++)
		check(recv(fd, b, SIZE, MSG_WAITALL) == SIZE && send(fd, b, SIZE, 0) == SIZE, "pong");
	char done = 0;
	check(read(ends[0], &done, 1) == 1, "pipe");
	check(send(fd, b, SIZE, 0) == SIZE, "send"); // which it does not read, so that its death is a reset
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	if (!done)
		return NO_LANE;
	while (send(fd, b, 1, MSG_NOSIGNAL) == 1)
		usleep(1000);
	check(recv(fd, b, SIZE, 0) == SIZE, "the bytes before its death");
	for (int i = 0; i < 2; i++) // the error first, if it is not told yet
		check(recv(fd, b, SIZE, 0) <= 0, "bytes out of nowhere");
	return 0;
}
