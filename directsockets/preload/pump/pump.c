// Pump moves bytes over one TCP connection. exn-tun demo sends the same program over
// all paths, so that they can be compared, and with libextds.so preloaded: it is
// an ordinary dynamically linked program and knows nothing of exnet.
//
//	pump serve ADDRESS PORT             says "ready", serves one connection after another
//	pump stream ADDRESS PORT SECONDS    says how many Gbit/s arrived
//	pump pingpong ADDRESS PORT SECONDS  says the median half round trip of 64 bytes, in us
//
// The first byte of a connection says which of them it is. A server that has read all
// of a stream answers with one byte, so that what is still under way counts as time.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 128 << 10, PING = 64, SAMPLES = 1 << 20 };

static char buffer[CHUNK];
static float samples[SAMPLES];

static void fail(const char *what)
{
	fprintf(stderr, "pump: %s: %s\n", what, strerror(errno));
	exit(1);
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

// all reads n bytes; it returns 0 at the end of the stream.
static int all(int fd, char *b, size_t n)
{
	while (n > 0) {
		ssize_t r = read(fd, b, n);
		if (r < 0 && errno == EINTR)
			continue;
		if (r <= 0)
			return 0;
		b += r;
		n -= (size_t)r;
	}
	return 1;
}

static void put(int fd, const char *b, size_t n)
{
	while (n > 0) {
		ssize_t w = write(fd, b, n);
		if (w < 0 && errno != EINTR)
			fail("write");
		if (w > 0) {
			b += w;
			n -= (size_t)w;
		}
	}
}

static void serve(int listener)
{
	for (;;) {
		int one = 1, fd = accept(listener, NULL, NULL);
		char mode;
		if (fd < 0)
			fail("accept");
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (all(fd, &mode, 1) && mode == 's') {
			while (read(fd, buffer, sizeof buffer) > 0)
				;
			put(fd, "!", 1);
		} else {
			while (all(fd, buffer, PING))
				put(fd, buffer, PING);
		}
		close(fd);
	}
}

static void stream(int fd, double seconds)
{
	double start = now(), sent = 0;
	put(fd, "s", 1);
	while (now() < start + seconds) {
		put(fd, buffer, sizeof buffer);
		sent += sizeof buffer;
	}
	if (shutdown(fd, SHUT_WR) < 0)
		fail("shutdown");
	if (!all(fd, buffer, 1))
		fail("the server did not answer");
	printf("%.3f\n", sent * 8e-9 / (now() - start));
}

static int ascending(const void *a, const void *b)
{
	float x = *(const float *)a, y = *(const float *)b;
	return (x > y) - (x < y);
}

static void pingpong(int fd, double seconds)
{
	double start = now(), last = start;
	size_t n = 0;
	put(fd, "p", 1);
	for (; last < start + seconds && n < SAMPLES; n++) {
		put(fd, buffer, PING);
		if (!all(fd, buffer, PING))
			fail("the server did not answer");
		double t = now();
		samples[n] = (float)((t - last) * 1e6 / 2);
		last = t;
	}
	qsort(samples, n, sizeof *samples, ascending);
	printf("%.3f\n", (double)samples[n / 2]);
}

int main(int argc, char **argv)
{
	struct sockaddr_in at = {.sin_family = AF_INET};
	int one = 1;
	if (argc < 4 || inet_pton(AF_INET, argv[2], &at.sin_addr) != 1) {
		fputs("usage: pump serve|stream|pingpong ADDRESS PORT [SECONDS]\n", stderr);
		return 2;
	}
	at.sin_port = htons((uint16_t)atoi(argv[3]));
	double seconds = argc > 4 ? atof(argv[4]) : 1;
	signal(SIGPIPE, SIG_IGN);
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		fail("socket");
	if (!strcmp(argv[1], "serve")) {
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || listen(fd, 16) < 0)
			fail("listen");
		puts("ready");
		fflush(stdout);
		serve(fd);
	}
	if (connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
		fail("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	if (!strcmp(argv[1], "stream"))
		stream(fd, seconds);
	else
		pingpong(fd, seconds);
	return 0;
}
