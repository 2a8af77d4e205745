// Pump moves bytes over connections and measures how fast. exn-tun demo and dsbench
// send the same program over all paths, so that they can be compared, and with
// libextds.so preloaded: it is an ordinary dynamically linked program and knows
// nothing of exnet.
//
//	pump serve ADDRESS PORT             says "ready PORT" and serves until it is killed
//	pump stream ADDRESS PORT SECONDS    says how many Gbit/s arrived
//	pump pingpong ADDRESS PORT SECONDS  says the median half round trip, in us
//	pump connect ADDRESS PORT SECONDS   says how many connections a second did a round trip
//
// An ADDRESS that begins with a slash is that of an AF_UNIX socket. A server on port 0
// takes one that is free. After SECONDS
// there may be
//
//	size=N     bytes of a write, or of a message (131072, 64)
//	streams=N  so many streams at a time, a thread on either side each
//	rate=N     messages a second; else one follows the other
//	check      compare every byte; else the first and the last of each read
//	json       say all that is known, as one JSON object: see report
//
// A first tenth of the time does not count. A stream counts until its receiver has
// answered that it has read all. With a rate, a message that is late because the one
// before it was counts from when it was due: a stall is not hidden by the messages
// that it kept from being sent. Bytes that are wrong, missing or too many end the
// program with 1.

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum {
	CHUNK = 128 << 10, // what iperf3 writes at a time
	PING = 64,
	LARGEST = 16 << 20, // of a write
	MANY = 64,	    // streams
	PERIOD = 131071,    // of what is sent: a prime, so that what is lost shifts it
	ENDS = 16,	    // compared at both ends of a read
	BUCKETS = 58 << 7,  // of the histogram: see count
};

// What a client begins each connection with, and what ends a stream.
struct hello {
	uint32_t mode, check;
	uint64_t size;
};
struct answer {
	uint64_t bytes, wrong, cpu;
};

static struct {
	const char *mode;
	double seconds, rate;
	uint64_t size, streams;
	int check, json;
	struct sockaddr_storage at;
	socklen_t length;
} with = {.seconds = 1, .streams = 1};

static char *pattern; // PERIOD bytes over and over, and LARGEST more to begin anywhere

static void fail(const char *what)
{
	fprintf(stderr, "pump: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void wrong(const char *what)
{
	fprintf(stderr, "pump: wrong data: %s\n", what);
	exit(1);
}

static uint64_t clock_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static uint64_t now(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

// all reads n bytes; it returns 0 at the end of the stream.
static int all(int fd, void *to, size_t n)
{
	char *b = to;
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

static int put(int fd, const void *from, size_t n)
{
	const char *b = from;
	while (n > 0) {
		ssize_t w = write(fd, b, n);
		if (w < 0 && errno != EINTR)
			return 0;
		if (w > 0) {
			b += w;
			n -= (size_t)w;
		}
	}
	return 1;
}

static void make_pattern(void)
{
	uint64_t x = 0x9e3779b97f4a7c15;
	pattern = malloc(PERIOD + LARGEST);
	if (!pattern)
		fail("memory");
	for (size_t i = 0; i < PERIOD; i++) { // xorshift64
		x ^= x << 13;
		x ^= x >> 7;
		x ^= x << 17;
		pattern[i] = (char)(x >> 32);
	}
	for (size_t i = PERIOD; i < PERIOD + LARGEST; i++)
		pattern[i] = pattern[i - PERIOD];
}

// differs looks whether the n bytes at b are those of a stream from byte at on.
static int differs(const char *b, size_t n, uint64_t at, int every)
{
	const char *want = pattern + at % PERIOD;
	size_t k = n < ENDS ? n : ENDS;
	if (every)
		return memcmp(b, want, n) != 0;
	return memcmp(b, want, k) != 0 || memcmp(b + n - k, want + n - k, k) != 0;
}

static int open_socket(void)
{
	int fd = socket(with.at.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (fd < 0)
		fail("socket");
	return fd;
}

static void no_delay(int fd)
{
	int one = 1;
	if (with.at.ss_family != AF_UNIX)
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// The server.

struct served {
	int fd;
	struct hello hello;
};

static void serve_stream(struct served s)
{
	size_t room = s.hello.size > CHUNK ? s.hello.size : CHUNK;
	char *buffer = malloc(room);
	struct answer a = {0};
	uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	ssize_t n;
	if (!buffer)
		fail("memory");
	while ((n = read(s.fd, buffer, room)) > 0 || (n < 0 && errno == EINTR)) {
		if (n < 0)
			continue;
		a.wrong += (uint64_t)differs(buffer, (size_t)n, a.bytes, s.hello.check != 0);
		a.bytes += (uint64_t)n;
	}
	a.cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	if (n == 0)
		put(s.fd, &a, sizeof a);
	free(buffer);
	close(s.fd);
}

static void *stream_thread(void *arg)
{
	struct served s = *(struct served *)arg;
	free(arg);
	serve_stream(s);
	return NULL;
}

static void serve_messages(struct served s)
{
	static char buffer[LARGEST];
	uint64_t rounds = s.hello.mode == 'c' ? 1 : UINT64_MAX;
	for (; rounds > 0 && all(s.fd, buffer, s.hello.size); rounds--)
		if (!put(s.fd, buffer, s.hello.size))
			break;
	close(s.fd); // of mode c the server is the first: the client's ports are free at once
}

static void serve(int listener)
{
	for (;;) {
		struct served s = {.fd = accept(listener, NULL, NULL)};
		if (s.fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (s.fd < 0)
			fail("accept");
		no_delay(s.fd);
		if (!all(s.fd, &s.hello, sizeof s.hello) || s.hello.size < 1 || s.hello.size > LARGEST) {
			close(s.fd);
		} else if (s.hello.mode == 'n') { // one of several streams
			pthread_t thread;
			struct served *copy = malloc(sizeof s);
			if (!copy)
				fail("memory");
			*copy = s;
			if (pthread_create(&thread, NULL, stream_thread, copy) != 0)
				fail("thread");
			pthread_detach(thread);
		} else if (s.hello.mode == 's') {
			serve_stream(s);
		} else {
			serve_messages(s);
		}
	}
}

// The client.

static int open_connection(char mode)
{
	struct hello h = {.mode = (uint32_t)mode, .check = (uint32_t)with.check, .size = with.size};
	int fd = open_socket();
	while (connect(fd, (struct sockaddr *)&with.at, with.length) < 0)
		if (errno != EINTR && errno != EAGAIN) // a full queue of AF_UNIX says EAGAIN
			fail("connect");
	no_delay(fd);
	if (!put(fd, &h, sizeof h))
		fail("write");
	return fd;
}

static struct {
	uint64_t begin, end;	 // of what counts, in ns
	uint64_t histogram[BUCKETS]; // of whole round trips, in ns
	uint64_t counted;	 // of them
} run;

// count has the seven highest bits of a time behind the first, so it is right to
// 0.8 %. Package measure of dsbench has the same buckets.
static void count(uint64_t ns)
{
	int shift = ns < 128 ? 0 : 63 - __builtin_clzll(ns) - 7;
	run.histogram[(uint64_t)shift * 128 + (ns >> shift)]++;
	run.counted++;
}

struct sent {
	double rate; // bytes a second
	uint64_t bytes, cpu;
};

static void *send_stream(void *arg)
{
	struct sent *s = arg;
	struct answer a;
	uint64_t counts = 0, since = 0, start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	int fd = open_connection(with.streams > 1 ? 'n' : 's');
	for (;;) {
		if (!put(fd, pattern + s->bytes % PERIOD, with.size))
			fail("write");
		s->bytes += with.size;
		uint64_t t = now();
		if (since == 0 && t >= run.begin)
			since = t;
		else if (since != 0)
			counts += with.size;
		if (t >= run.end && counts > 0)
			break;
	}
	s->cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - start;
	if (shutdown(fd, SHUT_WR) < 0)
		fail("shutdown");
	if (!all(fd, &a, sizeof a))
		fail("the server did not answer");
	s->rate = (double)counts * 1e9 / (double)(now() - since);
	s->cpu += a.cpu;
	if (a.wrong != 0)
		wrong("the stream is not what was sent");
	if (a.bytes != s->bytes)
		wrong("as many bytes as were sent did not arrive");
	close(fd);
	return NULL;
}

static struct sent stream(void)
{
	struct sent each[MANY] = {0}, sum = {0};
	pthread_t thread[MANY];
	for (uint64_t i = 1; i < with.streams; i++)
		if (pthread_create(&thread[i], NULL, send_stream, &each[i]) != 0)
			fail("thread");
	send_stream(&each[0]);
	for (uint64_t i = 0; i < with.streams; i++) {
		if (i > 0)
			pthread_join(thread[i], NULL);
		sum.rate += each[i].rate;
		sum.bytes += each[i].bytes;
		sum.cpu += each[i].cpu;
	}
	return sum;
}

// exchange does one round trip, numbered.
static void exchange(int fd, char *message, char *echo, uint64_t number)
{
	size_t k = with.size < sizeof number ? with.size : sizeof number;
	memcpy(message, &number, k);
	if (!put(fd, message, with.size))
		fail("write");
	if (!all(fd, echo, with.size))
		fail("the server did not answer");
	if (memcmp(message, echo, with.check ? with.size : k) != 0)
		wrong("an answer is not what was sent");
}

static double messages(int connects)
{
	char *message = malloc(2 * with.size), *echo = message + with.size;
	uint64_t sent = 0, gap = with.rate > 0 ? (uint64_t)(1e9 / with.rate) : 0, t = now(), due = t;
	int fd = connects ? -1 : open_connection('p');
	if (!message)
		fail("memory");
	memcpy(message, pattern, with.size);
	for (; t < run.end || run.counted == 0; sent++) { // one that takes longer than the run counts, too
		uint64_t from = t;
		if (gap > 0) {
			struct timespec at = {.tv_sec = (time_t)(due / 1000000000), .tv_nsec = (long)(due % 1000000000)};
			from = due;
			if (t < due) { // how long the sleep took too long is not the path's doing
				while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
					;
				from = now();
			}
			due += gap;
		}
		if (connects)
			fd = open_connection('c');
		exchange(fd, message, echo, sent);
		if (connects) {
			if (all(fd, echo, 1))
				wrong("more than was sent came back");
			close(fd);
		}
		t = now();
		if (from >= run.begin)
			count(t - from);
	}
	if (!connects)
		close(fd);
	free(message);
	return run.counted ? (double)run.counted * 1e9 / (double)(t - run.begin) : 0;
}

static uint64_t median(void)
{
	uint64_t seen = 0;
	for (uint64_t i = 0; i < BUCKETS; i++) {
		uint64_t shift = i < 256 ? 0 : i / 128 - 1;
		seen += run.histogram[i];
		if (2 * seen > run.counted)
			return ((i - 128 * shift) << shift) + ((1ULL << shift) >> 1);
	}
	return 0;
}

// report prints what was asked for: with json
//
//	{"rate": bytes or connections or messages a second, "bytes": all that were sent,
//	 "cpu": ns of both sides (of streams), "histogram": [[bucket, count], …]}
static void report(double rate, double plain, struct sent s)
{
	if (!with.json) {
		printf("%.3f\n", plain);
		return;
	}
	printf("{\"rate\": %.3f, \"bytes\": %llu, \"cpu\": %llu, \"histogram\": [", rate, (unsigned long long)s.bytes, (unsigned long long)s.cpu);
	const char *comma = "";
	for (int i = 0; i < BUCKETS; i++)
		if (run.histogram[i]) {
			printf("%s[%d, %llu]", comma, i, (unsigned long long)run.histogram[i]);
			comma = ", ";
		}
	puts("]}");
}

static void usage(void)
{
	fputs("usage: pump serve|stream|pingpong|connect ADDRESS PORT [SECONDS [size=N] [streams=N] [rate=N] [check] [json]]\n", stderr);
	exit(2);
}

static void parse(int argc, char **argv)
{
	struct sockaddr_in *in = (struct sockaddr_in *)&with.at;
	struct sockaddr_un *un = (struct sockaddr_un *)&with.at;
	if (argc < 4)
		usage();
	with.mode = argv[1];
	if (argv[2][0] == '/' && strlen(argv[2]) < sizeof un->sun_path) {
		un->sun_family = AF_UNIX;
		strcpy(un->sun_path, argv[2]);
		with.length = sizeof *un;
	} else if (inet_pton(AF_INET, argv[2], &in->sin_addr) == 1) {
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)atoi(argv[3]));
		with.length = sizeof *in;
	} else {
		usage();
	}
	with.size = strcmp(with.mode, "stream") ? PING : CHUNK;
	if (argc > 4)
		with.seconds = atof(argv[4]);
	for (int i = 5; i < argc; i++) {
		if (!strncmp(argv[i], "size=", 5))
			with.size = strtoull(argv[i] + 5, NULL, 10);
		else if (!strncmp(argv[i], "streams=", 8))
			with.streams = strtoull(argv[i] + 8, NULL, 10);
		else if (!strncmp(argv[i], "rate=", 5))
			with.rate = atof(argv[i] + 5);
		else if (!strcmp(argv[i], "check"))
			with.check = 1;
		else if (!strcmp(argv[i], "json"))
			with.json = 1;
		else
			usage();
	}
	if (with.size < 1 || with.size > LARGEST || with.streams < 1 || with.streams > MANY || !(with.seconds > 0) || with.rate < 0)
		usage();
}

int main(int argc, char **argv)
{
	int one = 1;
	parse(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	make_pattern();
	if (!strcmp(with.mode, "serve")) {
		int fd = open_socket();
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, (struct sockaddr *)&with.at, with.length) < 0 || listen(fd, MANY) < 0)
			fail("listen");
		struct sockaddr_in bound = {0};
		socklen_t length = sizeof bound;
		if (with.at.ss_family == AF_INET)
			getsockname(fd, (struct sockaddr *)&bound, &length);
		printf("ready %d\n", ntohs(bound.sin_port));
		fflush(stdout);
		serve(fd);
	}
	prctl(PR_SET_TIMERSLACK, 1); // or a message is due 50 us earlier than it is sent
	uint64_t start = now();
	run.begin = start + (uint64_t)(with.seconds * 1e8);
	run.end = start + (uint64_t)(with.seconds * 1.1e9);
	struct sent s = {0};
	if (!strcmp(with.mode, "stream")) {
		s = stream();
		report(s.rate, s.rate * 8e-9, s);
	} else if (!strcmp(with.mode, "pingpong")) {
		double rate = messages(0);
		report(rate, (double)median() / 2e3, s);
	} else if (!strcmp(with.mode, "connect")) {
		double rate = messages(1);
		report(rate, rate, s);
	} else {
		usage();
	}
	return 0;
}
