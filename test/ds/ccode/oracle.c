// SPDX-License-Identifier: Apache-2.0
//
// The C end of connections whose other end is a Go program; see ../gopeer.
//
//	oracle client|server PORT SEED CONNS PROGRESS [poll]
//
// The server is at ORACLE_ADDRESS, an IPv4 address, else at 127.0.0.1.
//
// Over each connection both ends write and read at once, in pieces of random
// sizes, as many bytes as the seed says, after some ping-pong; each then shuts down its side. What
// byte is at which offset follows from the seed, so every byte, the order, the
// totals and the end are verified. PROGRESS is a file of words: how many bytes
// of each connection this side's writes have taken, for who judges after a
// kill. With "poll" the sockets do not block, and poll(2) waits for them.
//
// It prints a line for each connection: bytes read and "end" or "reset".
// Exit status: 0, or 1 with what is wrong on stderr.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { most = 70000, conns_most = 64, greeting = 20000 };

static uint64_t seed;
static bool polls;
static _Atomic uint64_t *progress;

static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u; // splitmix64
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

// Side 0 is the client. The same three are in ../gopeer.
static uint64_t key(int conn, int side) { return mix(seed * 1000 + (uint64_t)conn * 2 + (uint64_t)side); }
static uint64_t total(int conn, int side) { return key(conn, side) % 8 == 0 ? key(conn, side) % 5000 : key(conn, side) % 8000000; }
static uint8_t byte(uint64_t key, uint64_t at) { return (uint8_t)(mix(key ^ at >> 3) >> (at & 7) * 8); }

static _Noreturn void fail(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	fprintf(stderr, "oracle, seed %lu: ", seed);
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	_exit(1);
}

// whence says of which byte of which flow these are the next 16, which tells what went wrong.
static void whence(const uint8_t *wrong, ssize_t n)
{
	enum { enough = 16 };
	for (int i = 0; n >= enough && i < 8; i++) {
		uint64_t k = key(i / 2, i % 2), end = total(i / 2, i % 2);
		uint8_t *all = malloc(end), *at;
		for (uint64_t j = 0; j < end; j++)
			all[j] = byte(k, j);
		at = memmem(all, end, wrong, enough);
		if (at)
			fprintf(stderr, "it is byte %td of connection %d of side %d\n", at - all, i / 2, i % 2);
		free(all);
	}
}

struct flow { int fd, conn, side; bool told; };

static size_t size(uint64_t *r)
{
	*r = mix(*r);
	static const size_t most_of[] = {16, 200, 600, 5000, most, 500};
	size_t n = most_of[*r % 6];
	return 1 + (*r >> 8) % n;
}

// again: the call is to be made once more.
static bool again(int fd, short events)
{
	if (errno == EINTR)
		return true;
	struct pollfd p = {fd, events, 0};
	if (!polls || errno != EAGAIN)
		return false;
	poll(&p, 1, -1);
	return true;
}

// whole moves one byte; false: the other end has died, as reading will tell.
static bool whole(int fd, uint8_t *b, bool out)
{
	for (;;) {
		ssize_t n = out ? send(fd, b, 1, MSG_NOSIGNAL) : recv(fd, b, 1, 0);
		if (n == 1)
			return true;
		if (n == 0 || !again(fd, out ? POLLOUT : POLLIN))
			return false;
	}
}

// greet is ping-pong until the Go end says 1: it has lanes.
static void greet(const struct flow *f)
{
	bool over = false;
	for (int i = 0; seed % 4 != 0 && !over && i < greeting; i++) {
		uint8_t said = 0, heard = 0;
		if (f->side == 0 && !whole(f->fd, &said, true))
			return;
		if (!whole(f->fd, &heard, false))
			return;
		if (f->side == 1 && !whole(f->fd, &said, true))
			return;
		over = heard == 1;
	}
}

static void *write_flow(void *arg)
{
	struct flow *f = arg;
	uint64_t k = key(f->conn, f->side), end = total(f->conn, f->side), r = k;
	uint8_t *b = malloc(most);
	for (uint64_t at = 0; at < end;) {
		size_t n = size(&r);
		if (n > end - at)
			n = end - at;
		for (size_t i = 0; i < n; i++)
			b[i] = byte(k, at + i);
		ssize_t w = send(f->fd, b, n, MSG_NOSIGNAL);
		if (w < 0 && again(f->fd, POLLOUT))
			continue;
		if (w < 0 && (errno == ECONNRESET || errno == EPIPE))
			f->told = true;
		if (f->told)
			break;
		if (w <= 0)
			fail("connection %d: send gives %zd, %s", f->conn, w, strerror(errno));
		at += (size_t)w;
		progress[f->conn] = at;
	}
	shutdown(f->fd, SHUT_WR);
	free(b);
	return NULL;
}

static void read_flow(struct flow *f, pthread_t writer)
{
	int other = 1 - f->side;
	uint64_t k = key(f->conn, other), end = total(f->conn, other), at = 0, r = k + 1;
	uint8_t *b = malloc(most);
	const char *how = "end";
	for (;;) {
		ssize_t n = recv(f->fd, b, size(&r), 0);
		if (n < 0 && again(f->fd, POLLIN))
			continue;
		if (n < 0 && errno == ECONNRESET) {
			how = "reset";
			break;
		}
		if (n < 0)
			fail("connection %d: recv at %lu: %s", f->conn, at, strerror(errno));
		if (n == 0)
			break;
		for (ssize_t i = 0; i < n; i++)
			if (b[i] != byte(k, at + (uint64_t)i)) {
				whence(b + i, n - i);
				fail("connection %d: byte %lu of %lu is %d instead of %d", f->conn, at + (uint64_t)i, end, b[i], byte(k, at + (uint64_t)i));
			}
		at += (uint64_t)n;
	}
	if (at > end)
		fail("connection %d: %lu bytes instead of %lu", f->conn, at, end);
	pthread_join(writer, NULL);
	if (f->told)
		how = "reset"; // TCP tells it to one of two
	printf("%d %lu of %lu %s\n", f->conn, at, end, how);
	fflush(stdout);
	free(b);
}

static void *play(void *arg)
{
	struct flow *f = arg;
	pthread_t writer;
	greet(f);
	pthread_create(&writer, NULL, write_flow, f);
	read_flow(f, writer);
	close(f->fd);
	return NULL;
}

int main(int argc, char **argv)
{
	if (argc < 6)
		return 2;
	bool server = !strcmp(argv[1], "server");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(argv[2])), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	if (getenv("ORACLE_ADDRESS"))
		inet_pton(AF_INET, getenv("ORACLE_ADDRESS"), &a.sin_addr);
	seed = strtoull(argv[3], NULL, 10);
	int conns = atoi(argv[4]), file = open(argv[5], O_RDWR | O_CLOEXEC), listener = -1;
	polls = argc > 6;
	void *p = mmap(NULL, 8 * conns_most, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	if (conns > conns_most || p == MAP_FAILED)
		return 2;
	progress = p;
	if (server) {
		socklen_t n = sizeof a;
		listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 64) < 0 || getsockname(listener, (struct sockaddr *)&a, &n) < 0)
			fail("listen: %s", strerror(errno));
		printf("port %d\n", ntohs(a.sin_port));
		fflush(stdout);
	}
	static struct flow flow[conns_most];
	static pthread_t thread[conns_most];
	for (int i = 0; i < conns; i++) {
		int fd = server ? accept(listener, NULL, NULL) : socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
		if (fd < 0 || (!server && connect(fd, (struct sockaddr *)&a, sizeof a) < 0))
			fail("connection %d: %s", i, strerror(errno));
		if (polls)
			fcntl(fd, F_SETFL, O_NONBLOCK);
		// A client tells which connection it is.
		uint8_t number = (uint8_t)i;
		if (!server && send(fd, &number, 1, MSG_NOSIGNAL) != 1)
			fail("connection %d: %s", i, strerror(errno));
		struct pollfd ready = {fd, POLLIN, 0};
		if (server && (poll(&ready, 1, -1) < 0 || recv(fd, &number, 1, 0) != 1))
			fail("connection %d says nothing: %s", i, strerror(errno));
		flow[i] = (struct flow){fd, number, server, false};
		pthread_create(&thread[i], NULL, play, &flow[i]);
	}
	for (int i = 0; i < conns; i++) {
		pthread_join(thread[i], NULL);
	}
	return 0;
}
