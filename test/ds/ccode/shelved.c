// SPDX-License-Identifier: Apache-2.0
//
// Files that are sent so often that the connections to a peer share what was sent of them:
//
//	shelved SEED CHANGES DIR
//
// Threads of a process, and of one that it has forked, send parts of more files than the library keeps.
// With CHANGES 1 the files become others, by pwrite and by stores, while parts of them are on their way. The
// reader, a process of its own, reads from all connections, little from some, and with CHANGES 0 has other
// programs inherit them, so that all goes back to TCP. Each part has a header that says how long it is, and what
// its bytes add up to when it is sent. The program is linked with the library, and looks whether bytes were shared.
// Exit status: 0, or 1.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "channel.h"
#include "family.h"
#include "narrow.h"
#include "real.h"

enum { FILES = 24, MOST = 640 << 10, THREADS = 2, EACH = 3, CONNECTIONS = 2 * THREADS * EACH, PARTS = 120, EXCHANGES = 12, LEAST = 4096 };

struct header {
	uint64_t length, sum;
};

// What both sending processes have.
struct shared {
	pthread_rwlock_t lock[FILES];
	_Atomic uint32_t running, shelved;
	size_t size[FILES];
	char has[FILES][MOST]; // each file
};

static struct shared *shared;
static int file[FILES], connection[CONNECTIONS], changing;
static uint64_t seed;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "shelved: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static uint32_t drawn(uint64_t *state, uint32_t below)
{
	*state ^= *state << 13;
	*state ^= *state >> 7;
	*state ^= *state << 17;
	return (uint32_t)(*state >> 11) % below;
}

static uint64_t sum(uint64_t sum, const char *bytes, size_t n)
{
	for (size_t i = 0; i < n; i++)
		sum = (sum ^ (uint8_t)bytes[i]) * 0x100000001b3ull;
	return sum;
}

static void all(int fd, void *buf, size_t n)
{
	for (ssize_t k; n > 0; n -= (size_t)k, buf = (char *)buf + k)
		check((k = read(fd, buf, n)) > 0, "read");
}

// change gives a part of a file other bytes.
static void change(int i, uint64_t *state)
{
	pthread_rwlock_wrlock(&shared->lock[i]);
	size_t from = drawn(state, (uint32_t)shared->size[i]), n = 1 + drawn(state, (uint32_t)(shared->size[i] - from));
	for (size_t k = from; k < from + n; k++)
		shared->has[i][k] = (char)(shared->has[i][k] * 5 + 1 + (char)n);
	if (drawn(state, 2)) {
		check(pwrite(file[i], shared->has[i] + from, n, (off_t)from) == (ssize_t)n, "pwrite");
	} else {
		char *at = mmap(NULL, shared->size[i], PROT_READ | PROT_WRITE, MAP_SHARED, file[i], 0);
		check(at != MAP_FAILED, "mmap");
		memcpy(at + from, shared->has[i] + from, n);
		munmap(at, shared->size[i]);
	}
	pthread_rwlock_unlock(&shared->lock[i]);
}

// look counts parts that are lent, which nobody notices otherwise.
static void look(void)
{
	for (struct channel *ch = family_channel_next(NULL); ch; ch = family_channel_next(ch))
		for (unsigned i = 0; i < ch->pool.shelf.lanes; i++)
			shared->shelved += ch->pool.shelf.lent[i] != 0;
}

static void *sender(void *which)
{
	int first = (int)(intptr_t)which;
	uint64_t state = seed * 1000003 + (uint64_t)first + 1;
	for (int n = 0; n < PARTS * EACH; n++) {
		int out = connection[first + n % EACH], a = (int)drawn(&state, FILES), b = (int)drawn(&state, FILES), i = a < b ? a : b;
		pthread_rwlock_rdlock(&shared->lock[i]);
		off_t at = drawn(&state, 3) ? 0 : (off_t)drawn(&state, (uint32_t)shared->size[i]);
		size_t left = shared->size[i] - (size_t)at;
		struct header h = {.length = left - (drawn(&state, 3) ? 0 : drawn(&state, (uint32_t)left))};
		h.sum = sum(0, shared->has[i] + at, h.length);
		check(write(out, &h, sizeof h) == sizeof h, "write");
		for (size_t sent = 0; sent < h.length;) {
			ssize_t k = sendfile(out, file[i], &at, h.length - sent);
			check(k > 0, "sendfile");
			sent += (size_t)k;
		}
		pthread_rwlock_unlock(&shared->lock[i]);
		if (changing && drawn(&state, 6) == 0)
			change(i, &state);
	}
	look();
	for (int n = 0; n < EACH; n++)
		check(write(connection[first + n], &(struct header){0}, sizeof(struct header)) == sizeof(struct header), "write");
	return NULL;
}

static void senders(int first)
{
	pthread_t thread[THREADS];
	for (int i = 0; i < THREADS; i++)
		check(pthread_create(&thread[i], NULL, sender, (void *)(intptr_t)(first + i * EACH)) == 0, "pthread_create");
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
}

// One connection of the reader.
struct incoming {
	struct header h;
	uint64_t sum;
	size_t head, bytes; // read of it
	int slow;
};

// reads takes what is there; 1: that was all.
static int reads(int fd, struct incoming *in, uint64_t *state)
{
	static char bytes[256 << 10];
	ssize_t k;
	if (in->head < sizeof in->h) {
		check((k = read(fd, (char *)&in->h + in->head, sizeof in->h - in->head)) > 0, "header");
		in->head += (size_t)k;
	} else {
		size_t n = 1 + drawn(state, in->slow ? 4096 : sizeof bytes), left = in->h.length - in->bytes;
		check((k = read(fd, bytes, n < left ? n : left)) > 0, "read");
		in->sum = sum(in->sum, bytes, (size_t)k);
		in->bytes += (size_t)k;
	}
	if (in->head < sizeof in->h || in->bytes < in->h.length)
		return 0;
	if (in->h.length == 0)
		return 1;
	if (in->sum != in->h.sum) {
		fprintf(stderr, "shelved: other bytes than the file had\n");
		_exit(1);
	}
	*in = (struct incoming){.slow = drawn(state, 8) == 0};
	return 0;
}

static void inherited(void)
{
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(127);
	}
	check(pid > 0 && waitpid(pid, NULL, 0) == pid, "fork");
}

static void reader(uint16_t port)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	static struct incoming in[CONNECTIONS];
	struct pollfd p[CONNECTIONS];
	uint64_t state = seed + 77;
	char x;
	for (int i = 0; i < CONNECTIONS; i++) {
		p[i] = (struct pollfd){socket(AF_INET, SOCK_STREAM, 0), POLLIN, 0};
		if (i % 2)
			check(narrow(p[i].fd, LEAST), "setsockopt");
		check(connect(p[i].fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
		for (int k = 0; k < EXCHANGES; k++)
			check(write(p[i].fd, "x", 1) == 1 && read(p[i].fd, &x, 1) == 1, "exchange");
	}
	for (int open = CONNECTIONS; open > 0;) {
		check(poll(p, CONNECTIONS, 60000) > 0, "poll");
		if (!changing && drawn(&state, 300) == 0)
			inherited();
		for (int i = 0; i < CONNECTIONS; i++)
			if (p[i].revents && reads(p[i].fd, &in[i], &state)) {
				close(p[i].fd);
				p[i].fd = -1;
				open--;
			}
	}
	_exit(0);
}

// ended waits for a process in many calls: the thread sanitizer has handlers run between them, not in
// them, and the reader waits for ours.
static int ended(pid_t pid)
{
	int status;
	for (pid_t r; (r = waitpid(pid, &status, WNOHANG)) != pid; usleep(1000))
		check(r == 0, "waitpid");
	return status;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	pthread_rwlockattr_t attr;
	char path[4096], port[8], x;
	check(argc == 4 || argc == 5, "usage");
	seed = strtoull(argv[1], NULL, 10);
	changing = atoi(argv[2]);
	if (argc == 5) // DIR is none, and this the port
		reader((uint16_t)atoi(argv[4]));
	alarm(120); // who dies may have a lock
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(shared != MAP_FAILED, "mmap");
	pthread_rwlockattr_init(&attr);
	pthread_rwlockattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	uint64_t state = seed + 5;
	for (int i = 0; i < FILES; i++) {
		pthread_rwlock_init(&shared->lock[i], &attr);
		shared->size[i] = (16 << 10) + drawn(&state, i % 4 ? 100 << 10 : MOST - (16 << 10));
		for (size_t k = 0; k < shared->size[i]; k++)
			shared->has[i][k] = (char)(k * 7 + k / 4096 * 13 + (size_t)i * 31);
		snprintf(path, sizeof path, "%s/%d", argv[3], i);
		file[i] = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
		check(file[i] >= 0 && write(file[i], shared->has[i], shared->size[i]) == (ssize_t)shared->size[i], path);
	}
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, CONNECTIONS) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
	pid_t peer = fork();
	if (peer == 0) {
		execl(argv[0], argv[0], argv[1], argv[2], "reader", port, (char *)NULL);
		_exit(127);
	}
	for (int i = 0; i < CONNECTIONS; i++) {
		check((connection[i] = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0, "accept");
		if (i % 2)
			check(narrow(connection[i], LEAST), "setsockopt");
		for (int k = 0; k < EXCHANGES; k++) {
			all(connection[i], &x, 1);
			check(write(connection[i], &x, 1) == 1, "exchange");
		}
	}
	real.setsockopt = stingy;
	pid_t child = fork();
	int mine = child == 0 ? CONNECTIONS / 2 : 0, others = CONNECTIONS / 2 - mine;
	for (int i = 0; i < CONNECTIONS / 2; i++)
		close(connection[others + i]);
	senders(mine);
	if (child == 0)
		_exit(0);
	check(ended(child) == 0, "the forked sender");
	check(ended(peer) == 0, "the reader");
	if (!shared->shelved) {
		fprintf(stderr, "shelved: no bytes were shared\n");
		return 1;
	}
	return 0;
}
