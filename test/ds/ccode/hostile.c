// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A victim serves two kinds of clients. The honest one plays ping-pong with
// bytes that both ends verify. The hostile ones upgrade too, and then a thread
// of theirs writes nonsense into all memory that they share with the victim,
// and rings its doorbells, while the socket calls go on.
//
//	hostile SEED [VICTIM]
//
// VICTIM is another program to be the victim, one in Go for instance; it finds struct
// shared at descriptor 200, and is run without the library.
//
// Two more hostile ones write nothing and only ring. The victim sleeps on them, in recv
// and in epoll_wait, and must be rid of them.
//
// The first process conducts: it starts hostile clients one after the other and
// kills each, until the honest one is through. Nothing may happen to the
// honest connection. What happens to the hostile ones does not matter, but
// that each thread of the victim comes to an end.
//
// Hostile clients know what ext-ds.md says: which mapping is theirs to write, and
// where in it the control blocks, slots and windows of the first lanes are.
//
// Exit status: 0 all is well, 1 something is wrong (said on stderr), 3 a hang.
// It prints how many hostile clients there were and how many had memory to write.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
	patience = 20,      // seconds without progress are a hang
	honest_rounds = 1500,
	greeting = 60,      // ping-pongs that let the library upgrade, and more where
	longer = 5,         // one that is not upgraded by then is of no use
	chunk = 400,        // bytes of each
	hostile_ms = 60,    // that a hostile client lives at most once it has memory to lie in,
	arming_ms = 2000,   // and how long it may take until then
	hostile_least = 40, // clients, however soon the honest one is through
	ring_s = 20,        // that a client rings, and
	ring_tries = 8,     // how many may do so in vain,
	still_heard = 4,    // with this exit status
};

static struct shared {
	_Atomic int port, over, serving;
	_Atomic uint64_t honest, armed;
} *shared;

static uint64_t seed;
static const char *other; // victim

static uint64_t rnd(uint64_t *s)
{
	uint64_t x = *s += 0x9e3779b97f4a7c15u; // splitmix64
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static _Noreturn void fail(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	fprintf(stderr, "seed %lu, process %d: ", seed, getpid());
	vfprintf(stderr, format, ap);
	fputc('\n', stderr);
	_exit(1);
}

static bool whole(int fd, void *p, size_t n, bool out)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = out ? send(fd, (char *)p + at, n - at, MSG_NOSIGNAL) : recv(fd, (char *)p + at, n - at, 0);
		if (r == 0 || (r < 0 && errno != EINTR))
			return false;
		at += r > 0 ? (size_t)r : 0;
	}
	return true;
}

static int dial(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons((uint16_t)shared->port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	if (connect(fd, (struct sockaddr *)&a, sizeof a) < 0)
		fail("connect: %s", strerrorname_np(errno));
	return fd;
}

static int greetings(char kind) { return kind == 'r' || kind == 'e' ? longer * greeting : greeting; }

// The honest conversation: a block of a random size and its echo.
static size_t block(uint64_t round, uint8_t *p)
{
	uint64_t s = seed * 1000003 + round;
	size_t n = 1 + rnd(&s) % (rnd(&s) % 4 ? 900 : 150000);
	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(i * 7 + round);
	return n;
}

static void be_honest(void)
{
	static uint8_t out[1 << 18], in[1 << 18];
	int fd = dial();
	if (!whole(fd, "h", 1, true))
		fail("honest: no connection");
	for (uint64_t round = 0; round < honest_rounds; round++) {
		size_t n = block(round, out);
		if (!whole(fd, out, n, true) || !whole(fd, in, n, false))
			fail("honest: round %lu: %s", round, strerrorname_np(errno));
		if (memcmp(in, out, n) != 0)
			fail("honest: wrong bytes in round %lu", round);
		shared->honest = round + 1;
	}
	close(fd);
}

// The hostile client. Areas are the parts of its memory that the victim reads and
// that are in use. A client lies in one of them, so that no other lie of its is
// found out first.
static struct area { uint64_t *at; size_t words; } areas[256];
static int bells[512], nareas, nbells;

static void add(uint8_t *base, uint64_t offset, size_t bytes)
{
	uint64_t used = 0;
	for (size_t i = 0; i < bytes / 8; i++)
		used |= ((uint64_t *)(base + offset))[i];
	if (used && nareas < 256)
		areas[nareas++] = (struct area){(uint64_t *)(base + offset), bytes / 8};
}

static void find_areas(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	while (f && fgets(line, sizeof line, f)) {
		unsigned long from, to;
		char mode[8];
		if (sscanf(line, "%lx-%lx %7s", &from, &to, mode) != 3 || strcmp(mode, "rw-s") != 0 || !strstr(line, "memfd:exn-ds-channel"))
			continue;
		const struct { uint64_t magic; uint32_t version, lanes, slots, window; uint64_t size; uint32_t windows; } *head = (void *)from;
		add((uint8_t *)from, 0, 8192);
		for (uint32_t lane = 0; lane < 4 && lane < head->lanes; lane++) {
			add((uint8_t *)from, 8192 + 256 * lane, 256);
			add((uint8_t *)from, 8192 + 256 * (uint64_t)head->lanes + 128 * (uint64_t)head->slots * lane, 128 * head->slots);
		}
		for (uint32_t w = 0; w < 4 && w < head->windows; w++)
			add((uint8_t *)from, head->size - (uint64_t)head->window * (head->windows - w), 16384);
	}
	if (f)
		fclose(f);
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; d && (e = readdir(d)) && nbells < 512;) {
		char target[64] = "";
		if (readlinkat(dirfd(d), e->d_name, target, sizeof target - 1) > 0 && strstr(target, "[eventfd]"))
			bells[nbells++] = atoi(e->d_name);
	}
	if (d)
		closedir(d);
}

static void *be_hostile(void *arg)
{
	uint64_t s = seed * 31 + (uintptr_t)arg;
	static const uint64_t nasty[] = {0, 1, 2, ~0ull, 1ull << 63, 1ull << 62, 1ull << 32, 0x7fffffff, 65536, 65537};
	bool little = rnd(&s) % 2; // it changes only words that are in use
	struct area a = areas[rnd(&s) % (size_t)nareas];
	bool ring = rnd(&s) % 2;
	for (;;) {
		for (int k = 0; k < 16; k++) {
			volatile uint64_t *w = a.at + rnd(&s) % a.words;
			uint64_t v = *w;
			if (little && v == 0)
				continue;
			switch (rnd(&s) % 6) {
			case 0: *w = nasty[rnd(&s) % (sizeof nasty / sizeof nasty[0])]; break;
			case 1: *w = rnd(&s); break;
			case 2: *w = v + rnd(&s) % 5 - 2; break;
			case 3: *w = v ^ 1ull << rnd(&s) % 64; break;
			case 4: // an advert, of its own memory or of a buffer
				w = a.at + rnd(&s) % (a.words / 16) * 16;
				w[1] = rnd(&s) >> rnd(&s) % 64;
				w[2] = rnd(&s) % 2 ? nasty[rnd(&s) % (sizeof nasty / sizeof nasty[0])] : rnd(&s) >> rnd(&s) % 64;
				w[0] = rnd(&s) % 2 << 63 | 16ull << 38 | (rnd(&s) % 2 ? 4ull : 9ull) << 32;
				break;
			default: *w = a.at[rnd(&s) % a.words]; break;
			}
		}
		if (rnd(&s) % 8 == 0)
			usleep(rnd(&s) % 200); // the socket calls get somewhere in between
		uint64_t one = 1;
		if (ring && nbells && write(bells[rnd(&s) % (size_t)nbells], &one, rnd(&s) % 2 ? 8 : 0) < 0)
			continue; // it may be full, or not take it
	}
	return NULL;
}

// ring_only rings until the victim has ended the connection, or for ring_s seconds.
static void ring_only(int fd)
{
	char b;
	for (time_t end = time(NULL) + ring_s; recv(fd, &b, 1, MSG_DONTWAIT) < 0 && errno == EAGAIN;) {
		if (time(NULL) > end)
			_exit(still_heard);
		for (int i = 0; i < 64 * nbells; i++) {
			uint64_t nothing = 0;
			if (write(bells[i % nbells], &nothing, sizeof nothing) < 0)
				break;
		}
	}
	_exit(0);
}

static void be_hostile_client(char kind, uint64_t number)
{
	uint8_t b[1 << 16] = {0};
	uint64_t s = seed * 77 + number;
	int fd = dial();
	if (!whole(fd, &kind, 1, true))
		return;
	for (int i = 0; i < greetings(kind); i++)
		if (!whole(fd, b, chunk, true) || !whole(fd, b, chunk, false))
			return;
	find_areas();
	if (nareas == 0)
		return;
	if (kind == 'r' || kind == 'e')
		ring_only(fd);
	shared->armed++;
	pthread_t t;
	if (pthread_create(&t, NULL, be_hostile, (void *)(uintptr_t)number) != 0)
		fail("no thread");
	for (;;) { // until it is killed, or found out
		size_t n = 1 + rnd(&s) % sizeof b;
		ssize_t r = rnd(&s) % 2 ? send(fd, b, n, (rnd(&s) % 4 ? MSG_DONTWAIT : 0) | MSG_NOSIGNAL) : recv(fd, b, n, MSG_DONTWAIT);
		if (r == 0 || (r < 0 && errno != EAGAIN))
			_exit(0);
		if (rnd(&s) % 50 == 0)
			usleep(500);
	}
}

// The victim: a thread for each client.
static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint8_t kind = 0, *b = malloc(1 << 18), *want = malloc(1 << 18);
	uint64_t s = seed + (uint64_t)fd;
	if (whole(fd, &kind, 1, false) && kind == 'h') {
		for (uint64_t round = 0; round < honest_rounds; round++) {
			size_t n = block(round, want);
			if (!whole(fd, b, n, false))
				fail("victim: honest round %lu: %s", round, strerrorname_np(errno));
			if (memcmp(b, want, n) != 0)
				fail("victim: wrong bytes in honest round %lu", round);
			if (!whole(fd, b, n, true))
				fail("victim: honest round %lu: %s", round, strerrorname_np(errno));
		}
	} else {
		for (int i = 0; i < greetings(kind); i++)
			if (!whole(fd, b, chunk, false) || !whole(fd, b, chunk, true))
				break;
		if (kind == 'e') { // it is to sleep in epoll_wait
			struct epoll_event ev = {.events = EPOLLIN};
			int set = epoll_create1(0);
			epoll_ctl(set, EPOLL_CTL_ADD, fd, &ev);
			epoll_wait(set, &ev, 1, -1);
			close(set);
		}
		// A forged advert may be of all windows, 256 MiB, which is too much byte by byte.
		for (int i = 0; (kind == 'r' || kind == 'e') && recv(fd, b, i < 10000 ? 1 : 1 << 16, 0) > 0; i++)
			;
		while (kind == 'p' && recv(fd, b, 1 << 16, MSG_PEEK) > 0 && recv(fd, b, 1 << 16, 0) > 0)
			;
		while (kind == 'x') { // all kinds of calls, until the connection is over
			struct pollfd p = {fd, POLLIN | POLLOUT, 0};
			size_t n = 1 + rnd(&s) % (1 << 16);
			ssize_t r;
			switch (rnd(&s) % 4) {
			case 0:
				poll(&p, 1, (int)(rnd(&s) % 3));
				continue;
			case 1:
				r = send(fd, b, n, (rnd(&s) % 4 ? MSG_DONTWAIT : 0) | MSG_NOSIGNAL);
				break;
			case 2:
				r = recv(fd, b, n, MSG_DONTWAIT);
				break;
			default:
				p.events = POLLIN;
				poll(&p, 1, -1); // the hostile client talks, or is killed
				r = recv(fd, b, n, rnd(&s) % 3 ? 0 : MSG_PEEK | MSG_DONTWAIT);
			}
			if (r == 0 || (r < 0 && errno != EAGAIN && errno != EINTR))
				break;
		}
	}
	close(fd);
	free(b);
	free(want);
	shared->serving--;
	return NULL;
}

static void be_victim(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&a, n) < 0 || listen(listener, 64) < 0 || getsockname(listener, (struct sockaddr *)&a, &n) < 0)
		fail("victim: %s", strerrorname_np(errno));
	shared->port = ntohs(a.sin_port);
	while (!shared->over) {
		struct pollfd p = {listener, POLLIN, 0};
		if (poll(&p, 1, 50) <= 0)
			continue;
		int fd = accept(listener, NULL, NULL);
		pthread_t t;
		shared->serving++;
		if (fd < 0 || pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) != 0)
			fail("victim: %s", strerrorname_np(errno));
		pthread_detach(t);
	}
	while (shared->serving > 0)
		usleep(1000);
}

static pid_t start(const char *role, uint64_t number)
{
	pid_t pid = fork();
	if (pid == 0) {
		char text[2][24];
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		snprintf(text[0], sizeof text[0], "%lu", seed);
		snprintf(text[1], sizeof text[1], "%lu", number);
		if (other && !strcmp(role, "victim")) {
			unsetenv("LD_PRELOAD");
			execl(other, "victim", text[0], (char *)NULL);
		}
		execl("/proc/self/exe", "hostile", text[0], role, text[1], (char *)NULL);
		_exit(2);
	}
	return pid;
}

int main(int argc, char **argv)
{
	if (argc < 2)
		return 2;
	seed = strtoull(argv[1], NULL, 0);
	enum { shared_fd = 200 };
	if (argc == 4) {
		shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
		switch (argv[2][0]) {
		case 'v': be_victim(); break;
		case 'h': be_honest(); break;
		default: be_hostile_client(argv[2][0], strtoull(argv[3], NULL, 0));
		}
		return 0;
	}
	other = argc > 2 ? argv[2] : NULL;
	int memory = memfd_create("hostile", 0);
	if (ftruncate(memory, sizeof *shared) < 0 || dup2(memory, shared_fd) < 0)
		fail("no memory: %s", strerrorname_np(errno));
	shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED, shared_fd, 0);
	pid_t victim = start("victim", 0);
	while (!shared->port)
		usleep(1000);
	pid_t honest = start("honest", 0);

	int status = 0;
	// A connection that was not on its lane by then is none that rings can end.
	const char *const ringing[] = {"r", "e"};
	for (int i = 0, tries = 0; i < 2; i++, tries = 0)
		while (waitpid(start(ringing[i], 0), &status, 0) < 0 || status != 0)
			if (!WIFEXITED(status) || WEXITSTATUS(status) != still_heard || ++tries == ring_tries)
				fail("a peer that only rings is still heard: %#x", status);
	uint64_t clients = 0, last = 0, idle = 0;
	bool through = false;
	while (!through || clients < hostile_least) {
		pid_t pid = start(clients % 4 ? "x" : "p", clients); // most meet all kinds of calls, some are looked at first
		clients++;
		const uint64_t before = shared->armed;
		bool lives = true;
		int ms = 0;
		for (int left = arming_ms; left > 0 && (lives = waitpid(pid, NULL, WNOHANG) != pid); left--, ms++) {
			if (left > hostile_ms && shared->armed > before)
				left = hostile_ms;
			usleep(1000);
		}
		if (lives) {
			kill(pid, SIGKILL);
			waitpid(pid, NULL, 0);
		}
		if (waitpid(victim, &status, WNOHANG) == victim)
			fail("the victim ended: %#x", status);
		if (!through && waitpid(honest, &status, WNOHANG) == honest) {
			if (status != 0)
				return 1;
			through = true;
		}
		idle = shared->honest == last ? idle + (uint64_t)ms : 0;
		last = shared->honest;
		if (!through && idle > patience * 1000) {
			fprintf(stderr, "seed %lu: the honest client does not get on\n", seed);
			return 3;
		}
	}
	shared->over = 1;
	for (int i = 0; waitpid(victim, &status, WNOHANG) != victim; i++) {
		if (i > patience * 100) {
			fprintf(stderr, "seed %lu: the victim still serves %d clients that are dead\n", seed, shared->serving);
			if (getenv("STREAM_STACKS"))
				pause();
			return 3;
		}
		usleep(10000);
	}
	if (status != 0)
		fail("the victim ended with %#x", status);
	printf("%lu hostile clients, %lu with memory\n", clients, (uint64_t)shared->armed);
	return 0;
}
