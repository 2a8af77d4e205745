// SPDX-License-Identifier: Apache-2.0
//
// busy has a writer take back what it has advertised just while the reader copies.
//
// The reader is this program once more, whose process_vm_readv waits, in its first copy,
// until the writer has looked often enough from another thread: with EXN_DS_TEST_SWITCH=2
// every second look takes the writer back to TCP, so at least one finds the reader busy.
// After that nobody looks any more, and both have to get on by themselves.
//
// Exit status: 0, 1 with what is wrong on stderr, or 77 if nothing was advertised.
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PIECE = 256 << 10, PART = 80 << 10, PIECES = 64, ROUNDS = 200, LOOKS = 40, PATIENCE = 20, COPIES = 3, LOOKED = 4 };

static uint8_t b[PIECE];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static uint8_t byte(size_t at) { return (uint8_t)(at * 2654435761u >> 13); }

// The library calls this one.
ssize_t process_vm_readv(pid_t pid, const struct iovec *to, unsigned long n, const struct iovec *from, unsigned long m, unsigned long flags)
{
	static _Atomic int copies;
	char c = 0;
	if (from->iov_len > 4096 && atomic_fetch_add(&copies, 1) == 0)
		check(write(COPIES, &c, 1) == 1 && read(LOOKED, &c, 1) == 1, "pipe");
	return syscall(SYS_process_vm_readv, pid, to, n, from, m, flags);
}

static void reader(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
	for (int i = 0; i < ROUNDS; i++)
		check(write(fd, b, 64) == 64 && recv(fd, b, 64, MSG_WAITALL) == 64, "ping");
	size_t at = 0;
	for (ssize_t n; (n = read(fd, b, PART)) > 0; at += (size_t)n)
		for (ssize_t i = 0; i < n; i++)
			if (b[i] != byte(at + (size_t)i)) {
				fprintf(stderr, "byte %zu is wrong\n", at + (size_t)i);
				exit(1);
			}
	if (at != (size_t)PIECE * PIECES) {
		fprintf(stderr, "%zu bytes\n", at);
		exit(1);
	}
	exit(0);
}

static void *writer(void *arg)
{
	static uint8_t out[PIECE];
	int fd = *(int *)arg;
	for (size_t at = 0; at < (size_t)PIECE * PIECES; at += PIECE) {
		for (size_t i = 0; i < PIECE; i++)
			out[i] = byte(at + i);
		check(write(fd, out, PIECE) == PIECE, "write");
	}
	check(shutdown(fd, SHUT_WR) == 0, "shutdown");
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		reader((uint16_t)atoi(argv[1]));
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), copies[2], looked[2], status;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	check(pipe2(copies, O_CLOEXEC) == 0 && pipe2(looked, O_CLOEXEC) == 0, "pipe");
	pid_t child = fork();
	if (child == 0) {
		char port[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		int to = fcntl(copies[1], F_DUPFD, 10), from = fcntl(looked[0], F_DUPFD, 10);
		dup2(to, COPIES);
		dup2(from, LOOKED);
		alarm(2 * PATIENCE); // whatever becomes of the writer
		unsetenv("EXN_DS_TEST_SWITCH");
		execl("/proc/self/exe", "busy", port, NULL);
		_exit(1);
	}
	close(copies[1]);
	int fd = accept(l, NULL, NULL);
	for (int i = 0; i < ROUNDS; i++)
		check(recv(fd, b, 64, MSG_WAITALL) == 64 && write(fd, b, 64) == 64, "pong");
	pthread_t thread;
	char c;
	check(pthread_create(&thread, NULL, writer, &fd) == 0, "thread");
	bool busy = read(copies[0], &c, 1) == 1;
	struct pollfd p = {fd, POLLOUT, 0};
	for (int i = 0; busy && i < LOOKS; i++)
		poll(&p, 1, 0);
	check(!busy || write(looked[1], &c, 1) == 1, "pipe");
	alarm(PATIENCE);
	check(pthread_join(thread, NULL) == 0 && waitpid(child, &status, 0) == child, "wait");
	if (status != 0)
		fprintf(stderr, "the reader ended with %x\n", status);
	return status != 0 ? 1 : busy ? 0 : 77;
}
