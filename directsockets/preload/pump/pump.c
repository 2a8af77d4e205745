// Pump moves bytes over connections and measures how fast. exn-tun demo and dsbench
// send the same program over all paths, so that they can be compared, and with
// libextds.so preloaded: it is an ordinary dynamically linked program and knows
// nothing of exnet.
//
//	pump serve ADDRESS PORT             says "ready PORT" and serves until it is killed
//	pump stream ADDRESS PORT SECONDS    says how many Gbit/s arrived
//	pump pingpong ADDRESS PORT SECONDS  says the median half round trip, in us
//	pump connect ADDRESS PORT SECONDS   says how many connections a second did a round trip
//	pump many ADDRESS PORT SECONDS      says how many round trips a second so many connections did
//
// An ADDRESS that begins with a slash is that of an AF_UNIX socket. A server on port 0
// takes one that is free. After SECONDS
// there may be
//
//	size=N     bytes of a write, or of a message (131072, 64)
//	streams=N  so many streams at a time, a thread on either side each; of many:
//	           so many connections, of which at most 100 wait for an answer
//	rate=N     messages a second; else one follows the other
//	pause=US   so long between an answer and the next message
//	rounds=N   round trips of each connection of connect
//	memory=N   bytes of memory, a multiple of size, that a stream comes out of and goes
//	           into, one write behind the other; else one place that is hot. Nothing of the
//	           first WARM bytes counts: they touch memory that is new, and go by TCP
//	buffer     the memory is a registered buffer (exnet.h) as soon as there is one
//	check      compare every byte; else the first and the last of each read
//	split      of pingpong: also say how long writing takes, and waiting for the answer
//	json       say all that is known, as one JSON object: see report
//
// A server reads streams as fast as it can, or (after SECONDS, of which it takes no notice) with
//
//	part=N     reads of N bytes
//	think=US   so much work after each of them
//
// A first tenth of the time does not count. A stream counts until its receiver has
// answered that it has read all. With a rate, a message that is late because the one
// before it was counts from when it was due, and what was due in the run is sent even
// behind its end: a stall is not hidden by the messages that it kept from being sent. Bytes that are wrong, missing or too many end the
// program with 1.
//
// Of many who started it looks at the processes meanwhile, so it says
// "begun", "opened" and, after their result, "done", and waits for a byte each time.

#define _GNU_SOURCE
#include "pump.h"

#include "../exnet.h"

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/un.h>
#include <unistd.h>

struct with with = {.seconds = 1, .streams = 1, .rounds = 1};

static void *send_stream(void *arg)
{
	struct sent *s = arg;
	struct answer a;
	uint64_t counts = 0, since = 0, warm = 0, start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	uint64_t period = with.memory ? with.memory : PERIOD;
	const char *from = pattern;
	char *buffer = NULL;
	int fd = open_connection(with.streams > 1 ? 'n' : 's');
	for (;;) {
		if (with.buffer && from == pattern && s->bytes > 0) {
			buffer = exn_buffer(fd, with.memory);
			if (exn_buffer_registered(fd, buffer)) {
				from = memcpy(buffer, pattern, with.memory);
			} else {
				exn_buffer_free(buffer); // the connection has no lane yet
				if (s->bytes >= WARM)
					wrong("there is no registered buffer");
			}
		}
		if (!put(fd, from + s->bytes % period, with.size))
			fail("write");
		s->bytes += with.size;
		uint64_t t = now();
		if (since == 0 && t >= run.begin && (!with.memory || s->bytes >= WARM))
			since = t;
		else if (since != 0)
			counts += with.size;
		if (with.memory && warm == 0 && s->bytes >= WARM) {
			warm = s->bytes;
			start = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		}
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
	s->bytes -= warm;
	exn_buffer_free(buffer);
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
	uint64_t begin = with.split ? now() : 0;
	if (!put(fd, message, with.size))
		fail("write");
	uint64_t written = with.split ? now() : 0;
	if (!all(fd, echo, with.size))
		fail("the server did not answer");
	if (with.split) {
		run.writing += written - begin;
		run.waiting += now() - written;
	}
	if (memcmp(message, echo, with.check ? with.size : k) != 0)
		wrong("an answer is not what was sent");
}

// more says whether the run goes on. One message that takes longer than it counts, too. With
// a rate, what was due in it is sent behind its end, or a stall there would hide what it kept
// from being sent; but a path too slow for that gets no more than the same time again.
static int more(uint64_t t, uint64_t due)
{
	return run.counted == 0 || (with.rate > 0 ? due < run.end && t < 2 * run.end - run.begin : t < run.end);
}

// messages also says in s how many bytes it sent, and the CPU time of our side.
static double messages(int connects, struct sent *s)
{
	char *message = malloc(2 * with.size), *echo = message + with.size;
	uint64_t sent = 0, gap = with.rate > 0 ? (uint64_t)(1e9 / with.rate) : 0, t = now(), due = t;
	int fd = connects ? -1 : open_connection('p');
	uint64_t begin = clock_ns(CLOCK_PROCESS_CPUTIME_ID);
	if (!message)
		fail("memory");
	memcpy(message, pattern, with.size);
	for (; more(t, due); sent++) {
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
		for (uint64_t i = 0; i < (connects ? with.rounds : 1); i++)
			exchange(fd, message, echo, sent + i);
		if (connects) {
			if (all(fd, echo, 1))
				wrong("more than was sent came back");
			close(fd);
		}
		t = now();
		if (from >= run.begin)
			count(t - from);
		if (with.pause > 0) {
			struct timespec d = {.tv_nsec = (long)(with.pause * 1e3)};
			clock_nanosleep(CLOCK_MONOTONIC, 0, &d, NULL);
			t = now();
		}
	}
	s->cpu = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - begin;
	s->bytes = sent * with.size * (connects ? with.rounds : 1);
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
//	 "writing", "waiting": ns of all messages, with split,
//	 "cpu": ns of both sides (of messages: of ours), "histogram": [[bucket, count], …]}
static void report(double rate, double plain, struct sent s)
{
	if (!with.json) {
		printf("%.3f\n", plain);
		return;
	}
	printf("{\"rate\": %.3f, \"bytes\": %llu, \"writing\": %llu, \"waiting\": %llu, \"cpu\": %llu, \"histogram\": [", rate, (unsigned long long)s.bytes,
	       (unsigned long long)run.writing, (unsigned long long)run.waiting, (unsigned long long)s.cpu);
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
	fputs("usage: pump serve|stream|pingpong|connect|many ADDRESS PORT [SECONDS [size=N] [streams=N] [rate=N] [pause=US] [rounds=N] [memory=N] [part=N] [think=US] [buffer] [check] [split] [json]]\n", stderr);
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
		else if (!strncmp(argv[i], "pause=", 6))
			with.pause = atof(argv[i] + 6);
		else if (!strncmp(argv[i], "rounds=", 7))
			with.rounds = strtoull(argv[i] + 7, NULL, 10);
		else if (!strncmp(argv[i], "memory=", 7))
			with.memory = strtoull(argv[i] + 7, NULL, 10);
		else if (!strncmp(argv[i], "part=", 5))
			with.part = strtoull(argv[i] + 5, NULL, 10);
		else if (!strncmp(argv[i], "think=", 6))
			with.think = atof(argv[i] + 6);
		else if (!strcmp(argv[i], "buffer"))
			with.buffer = 1;
		else if (!strcmp(argv[i], "split"))
			with.split = 1;
		else if (!strcmp(argv[i], "check"))
			with.check = 1;
		else if (!strcmp(argv[i], "json"))
			with.json = 1;
		else
			usage();
	}
	uint64_t most = !strcmp(with.mode, "many") ? CROWD : MANY;
	if (!fits(with.size, with.memory) || (with.memory && strcmp(with.mode, "stream")) || (with.buffer && !with.memory) || with.streams < 1 || with.streams > most || with.rounds < 1 || !(with.seconds > 0) || with.rate < 0 ||
	    with.pause < 0 || with.pause >= 1e6 || with.part > CHUNK || with.think < 0 || ((with.part || with.think > 0) && strcmp(with.mode, "serve")))
		usage();
}

int main(int argc, char **argv)
{
	int one = 1;
	struct rlimit files;
	parse(argc, argv);
	signal(SIGPIPE, SIG_IGN);
	if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
		files.rlim_cur = files.rlim_max; // a crowd needs a descriptor for each
		setrlimit(RLIMIT_NOFILE, &files);
	}
	make_pattern(with.memory);
	if (!strcmp(with.mode, "serve")) {
		int fd = open_socket();
		setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
		if (bind(fd, (struct sockaddr *)&with.at, with.length) < 0 || listen(fd, SOMAXCONN) < 0)
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
		double rate = messages(0, &s);
		report(rate, (double)median() / 2e3, s);
	} else if (!strcmp(with.mode, "connect")) {
		double rate = messages(1, &s);
		report(rate, rate, s);
	} else if (!strcmp(with.mode, "many")) {
		s = crowd();
		report(s.rate, s.rate, s);
		step("done");
	} else {
		usage();
	}
	return 0;
}
