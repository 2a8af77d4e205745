// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A stream run sends bytes both ways over a few connections between a client
// and a server process, with random calls of several threads and forked
// children. What byte is at which offset follows from the seed, so both ends
// verify every byte, the order, the totals and the end.
//
//	stream SEED                    everything must arrive
//	stream SEED kill client|server one side dies by SIGKILL, somewhere
//	stream SEED stop               sides are stopped and go on, somewhere
//	stream SEED hand               and descriptors are handed to stdio, programs, processes
//	stream SEED kill client N      one server survives N clients, and keeps nothing of them
//
// The first process conducts: it draws the totals, starts both sides (as new
// programs, so that they share nothing but a memory file with the counts),
// kills or stops them, watches that there is progress, and judges at the end.
//
// With STREAM_CLIENT_NETNS the client is in that network namespace (a file), and
// STREAM_IPV4 and STREAM_IPV6 say where it finds the server. With STREAM_BUFFERS they write
// out of registered buffers, too.
//
// Of a side that outlives the other is asked: the bytes it gets are the first
// ones of the stream; then the end or a reset. After the end, not a reset, it
// has all bytes of all writes that had returned.
//
// Exit status: 0 all is well, 1 something is wrong (said on stderr), 3 a hang.
#include "stream.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

// No progress for so long is a hang: far above any wait that is meant, also of
// a process that the machine gives little time. In seconds.
enum { patience = 20 };

struct run *run;

void fail(const char *format, ...)
{
	char text[512];
	va_list ap;
	int n = snprintf(text, sizeof text, "seed %lu, process %d: ", run->seed, getpid());
	va_start(ap, format);
	n += vsnprintf(text + n, sizeof text - (size_t)n - 1, format, ap);
	va_end(ap);
	text[n++] = '\n';
	run->failed = 1;
	if (write(2, text, (size_t)n) < 0)
		_exit(2);
	_exit(1);
}

static uint64_t draw_total(struct rng *r)
{
	switch (rnd(r, 6)) {
	case 0:
		return rnd(r, 3); // nothing, or nearly so
	case 1:
		return rnd(r, 20000);
	case 2:
	case 3:
		return rnd(r, 400000);
	default:
		return rnd(r, 3000000);
	}
}

static void draw(void)
{
	struct rng r = rng_of(run->seed, 0, 0, 1);
	static const int families[] = {4, 4, 6, 0};
	run->family = families[rnd(&r, 4)];
	run->conns = 1 + (int)rnd(&r, max_conns);
	pthread_mutexattr_t a;
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	for (int round = 0; round < run->rounds; round++)
		for (int i = 0; i < run->conns; i++)
			for (int k = 0; k < 2; k++) {
				struct direction *d = &run->conn[round][i].to[k];
				d->total = draw_total(&r);
				d->key = (uint64_t)rnd(&r, ~0u) << 32 | rnd(&r, ~0u);
				d->small = one_in(&r, 3);
				if (d->small)
					d->total %= 30000;
				d->concurrent = one_in(&r, 5);
				pthread_mutex_init(&d->w.lock, &a);
				pthread_mutex_init(&d->r.lock, &a);
			}
}

// progress is a number that changes as long as something happens.
static uint64_t progress(int round)
{
	uint64_t sum = (uint64_t)run->round + (uint64_t)run->port;
	for (int i = 0; i < run->conns; i++)
		for (int k = 0; k < 2; k++) {
			struct direction *d = &run->conn[round][i].to[k];
			sum += d->w.off + d->r.off + (uint64_t)d->w.done + (uint64_t)d->r.done;
		}
	return sum;
}

static uint64_t whole(int round)
{
	uint64_t sum = 0;
	for (int i = 0; i < run->conns; i++)
		sum += run->conn[round][i].to[0].total + run->conn[round][i].to[1].total;
	return sum;
}

static void print_state(int round)
{
	static const char *const ends[] = {"going", "end", "reset"};
	for (int i = 0; i < run->conns; i++)
		for (int k = 0; k < 2; k++) {
			struct direction *d = &run->conn[round][i].to[k];
			fprintf(stderr, "  connection %d to the %s: written %lu (%s, %u calls), read %lu (%s, %u calls) of %lu%s\n", i,
				k == server ? "server" : "client", d->w.off, ends[d->w.done], d->w.calls,
				d->r.off, ends[d->r.done], d->r.calls, d->total, d->concurrent ? ", concurrent readers" : "");
		}
}

static pid_t sides[2];

static void kill_side(enum role role, int signo)
{
	if (sides[role] > 0)
		kill(-sides[role], signo);
}

// hang shows where everybody is, and ends the run.
static void hang(int round)
{
	fprintf(stderr, "seed %lu: no progress for %d s in round %d\n", run->seed, patience, round);
	print_state(round);
	char command[512];
	snprintf(command, sizeof command,
		"unset LD_PRELOAD; for p in $(pgrep -g %d,%d); do echo \"process $p: $(tr '\\0' ' ' </proc/$p/cmdline)\";"
		" gdb -p $p -batch -ex 'thread apply all bt 14' 2>/dev/null | grep -E '^(Thread|#)' || cat /proc/$p/task/*/wchan; done 1>&2",
		sides[client] > 0 ? sides[client] : sides[server], sides[server] > 0 ? sides[server] : sides[client]);
	if (getenv("STREAM_STACKS") && system(command) != 0)
		fprintf(stderr, "no stacks\n");
	kill_side(client, SIGKILL);
	kill_side(server, SIGKILL);
	exit(3);
}

static void start(enum role role, int round)
{
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL); // nobody is left when the conductor is killed
		setpgid(0, 0);
		char number[16];
		snprintf(number, sizeof number, "%d", round);
		const char *elsewhere = getenv("STREAM_CLIENT_NETNS");
		if (elsewhere && role == client && setns(open(elsewhere, O_RDONLY | O_CLOEXEC), CLONE_NEWNET) < 0)
			fail("%s: %s", elsewhere, strerrorname_np(errno));
		execl("/proc/self/exe", run->alone ? "stream-both" : role == server ? "stream-server" : "stream-client", number, (char *)NULL);
		_exit(2);
	}
	setpgid(pid, pid); // so that it is done whoever comes first
	sides[role] = pid;
}

// await_end waits for a side; it returns its status, or -1 when it still runs.
static int await_end(enum role role, bool block)
{
	int status;
	pid_t pid = waitpid(sides[role], &status, block ? 0 : WNOHANG);
	if (pid == 0)
		return -1;
	sides[role] = 0;
	return status;
}

static int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// judge compares the counts of a round once nobody makes calls any more.
static void judge(int round, int victim)
{
	for (int i = 0; i < run->conns; i++)
		for (int k = 0; k < 2; k++) {
			struct direction *d = &run->conn[round][i].to[k];
			const char *to = k == server ? "server" : "client";
			if (!run->death) {
				if (d->w.off != d->total || d->r.off != d->total || d->r.done != at_end)
					fail("connection %d to the %s: written %lu, read %lu of %lu, end %d", i, to, d->w.off, d->r.off, d->total, d->r.done);
				if (d->concurrent && d->r.sum != expected_sum(d))
					fail("connection %d to the %s: the bytes of all readers do not add up", i, to);
				continue;
			}
			if (d->r.off > d->w.attempt)
				fail("connection %d to the %s: read %lu, but written at most %lu", i, to, d->r.off, d->w.attempt);
			// A reset is told once: when the writer of that end took it, the reader sees an end.
			bool told = run->conn[round][i].to[!k].w.done == was_reset;
			// What the dead read last it may not have counted.
			if (k != victim && d->r.done == at_end && !told && d->r.off < d->w.off)
				fail("connection %d to the %s: the end after %lu, but %lu were written", i, to, d->r.off, d->w.off);
		}
}

// conduct plays one round; victim is -1 when nobody dies.
static void conduct(int round, int victim, bool stops, struct rng *r)
{
	uint64_t target = 0;
	uint32_t also_wait = rnd(r, 3000);
	bool by_time = one_in(r, 6);
	if (whole(round) > 0)
		target = ((uint64_t)rnd(r, ~0u) << 8) % (whole(round) * 2); // written and read
	start(client, round);
	uint64_t last = 0;
	int64_t since = now_ms();
	bool both = run->alone, killed = false, last_round = round == run->rounds - 1;
	for (int status[2] = {-1, -1};;) {
		uint64_t p = progress(round);
		if (p != last) {
			last = p;
			since = now_ms();
		} else if (now_ms() - since > patience * 1000)
			hang(round);
		if (run->failed) {
			usleep(200000); // let it be said
			kill_side(client, SIGKILL);
			kill_side(server, SIGKILL);
			exit(1);
		}
		if (victim >= 0 && !killed && (by_time || p >= target + (uint64_t)run->round + (uint64_t)run->port)) {
			usleep(also_wait);
			kill_side((enum role)victim, SIGKILL);
			killed = true;
		}
		if (stops && one_in(r, 4)) {
			enum role who = rnd(r, 2);
			kill_side(who, SIGSTOP);
			usleep(rnd(r, one_in(r, 20) ? 60000 : 3000));
			kill_side(who, SIGCONT);
		}
		if (status[client] < 0 && (status[client] = await_end(client, false)) >= 0 && victim == client)
			run->over = round + 1; // so that the server does not wait for more connections
		if (!both && last_round && status[server] < 0)
			status[server] = await_end(server, false);
		for (int k = 0; k < 2; k++)
			if (status[k] > 0 && !(k == victim && WIFSIGNALED(status[k]) && WTERMSIG(status[k]) == SIGKILL))
				fail("the %s ended with status %#x", k == server ? "server" : "client", status[k]);
		if (status[client] >= 0 && (both || (last_round ? status[server] >= 0 : run->round > round)))
			break;
		usleep(200);
	}
	// Members of the dead side's group that were its children: reaped by us.
	while (waitpid(-1, NULL, WNOHANG) > 0)
		continue;
	judge(round, victim);
}

static void map_run(bool create, size_t size)
{
	if (create) {
		int fd = memfd_create("stream-run", 0);
		if (fd < 0 || dup2(fd, shared_fd) < 0 || ftruncate(shared_fd, (off_t)size) < 0)
			abort();
		close(fd);
	} else {
		off_t end = lseek(shared_fd, 0, SEEK_END);
		if (end <= 0)
			abort();
		size = (size_t)end;
	}
	run = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	if (run == MAP_FAILED)
		abort();
}

static void *serve_here(void *arg)
{
	(void)arg;
	play_side(server, 0);
	return NULL;
}

int main(int argc, char **argv)
{
	if (strncmp(argv[0], "stream-", 7) == 0) { // a side, started by the conductor
		map_run(false, 0);
		signal(SIGPIPE, SIG_DFL);
		if (strcmp(argv[0], "stream-client") == 0)
			return play_side(client, atoi(argv[1]));
		if (strcmp(argv[0], "stream-both") == 0) {
			pthread_t t;
			if (pthread_create(&t, NULL, serve_here, NULL) != 0)
				abort();
			while (!run->port)
				usleep(100);
			play_side(client, 0);
			pthread_join(t, NULL);
			return 0;
		}
		for (int round = 0; round < run->rounds; round++) {
			while (run->round < round)
				usleep(100);
			play_side(server, round);
			run->round = round + 1;
		}
		return 0;
	}

	if (argc < 2) {
		fprintf(stderr, "usage: stream SEED [stop | hand | kill client|server [ROUNDS]]\n");
		return 2;
	}
	bool stops = argc > 2 && strcmp(argv[2], "stop") == 0;
	int victim = argc > 3 && strcmp(argv[2], "kill") == 0 ? strcmp(argv[3], "server") == 0 ? server : client : -1;
	int rounds = argc > 4 ? atoi(argv[4]) : 1;
	if (rounds < 1 || rounds > max_round || (victim == server && rounds > 1))
		return 2;
	map_run(true, sizeof(struct run) + (size_t)rounds * sizeof(struct conn[max_conns]));
	run->seed = strtoull(argv[1], NULL, 0);
	run->death = victim >= 0;
	run->stops = stops;
	run->hands_over = argc > 2 && strcmp(argv[2], "hand") == 0;
	run->buffers = getenv("STREAM_BUFFERS") != NULL;
	run->rounds = rounds;
	run->alone = run->seed % 8 == 7 && !run->death && !getenv("STREAM_CLIENT_NETNS");
	prctl(PR_SET_CHILD_SUBREAPER, 1);
	draw();
	struct rng r = rng_of(run->seed, 0, 0, 4);
	if (!run->alone) {
		start(server, 0);
		while (!run->port && !run->failed)
			usleep(100);
	}
	for (int round = 0; round < rounds; round++)
		conduct(round, victim, stops, &r);
	printf("seed %lu: %d rounds of %d connections, family %d, %lu bytes; lane %lu tcp %lu zcopy %lu; handed over %d\n", run->seed, rounds, run->conns,
		run->family, whole(0), run->lane, run->tcp, run->zcopy, run->handed_over);
	if (rounds > 5) {
		// What the last round left may not have been noticed yet; threads leave
		// cached stacks and arenas. Something kept for each dead peer would show.
		// Both processes of a client may have met the server from both sides.
		enum { channel = 18, channels = 4 };
		if (run->fds[1] > run->fds[0] + 3 + channel * channels || run->maps[1] > run->maps[0] + 40)
			fail("the server keeps something of clients that died: after 5 and after %d rounds %d and %d descriptors, %d and %d mappings",
				rounds, run->fds[0], run->fds[1], run->maps[0], run->maps[1]);
	}
	return 0;
}
