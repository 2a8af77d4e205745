// SPDX-License-Identifier: Apache-2.0
//
// A program whose one thread waits in an edge-triggered epoll set, for room among other
// things, while another writes, as runtimes of asynchronous programs do:
//
//	driver MIB CHUNK PAUSE
//
// The writer writes MIB in pieces of CHUNK bytes until there is no room, and goes on when
// the first thread has been told of some. The reader, a second process, pauses for up to
// PAUSE us at random. An event that does not come ends it with 1.
//
//	driver TIMES
//
// Two threads wait in a set each, which both have the connection: one wants to read, the
// other nothing, as Erlang's do when a socket has moved from one to the other. TIMES a byte
// comes, by TCP, since this end has shut down.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { ROUNDS = 700, PIECE = 40, PATIENCE = 10, MOST = 1 << 20 }; // PATIENCE in seconds

static char bytes[MOST];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t told = PTHREAD_COND_INITIALIZER;
static long events; // that said there is room
static int set;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "driver: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void receive(int fd, size_t n)
{
	for (ssize_t k; n > 0; n -= (size_t)k)
		if ((k = read(fd, bytes, n < MOST ? n : MOST)) <= 0)
			die("read");
}

// sender is the reader, then: it writes a byte for each that the pipe brings.
static void sender(int fd, int asked)
{
	char b;
	while (read(asked, &b, 1) == 1)
		if (write(fd, &b, 1) != 1)
			die("write");
}

static _Noreturn void reader(struct sockaddr_in *at, size_t all, size_t chunk, unsigned pause, int asked)
{
	int one = 1, fd = socket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0 || connect(fd, (struct sockaddr *)at, sizeof *at) < 0)
		die("connect");
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	for (int i = 0; i < ROUNDS; i++) {
		if (write(fd, bytes, PIECE) != PIECE)
			die("write");
		receive(fd, PIECE);
	}
	if (all == 0)
		sender(fd, asked);
	for (ssize_t k; all > 0; all -= (size_t)k) {
		if ((k = read(fd, bytes, chunk < all ? chunk : all)) <= 0)
			die("read");
		if (pause && rand() % 64 == 0)
			usleep((unsigned)rand() % pause);
	}
	_exit(0);
}

static void *want_nothing(void *waits)
{
	struct epoll_event e;
	for (;;)
		epoll_wait(*(int *)waits, &e, 1, -1);
	return NULL;
}

static void too_late(int sig)
{
	(void)sig;
	static const char what[] = "driver: no event, but a byte\n";
	_exit(write(2, what, sizeof what - 1) > 0);
}

static void two_sets(int fd, int ask, long times)
{
	struct epoll_event e = {.events = EPOLLIN | EPOLLONESHOT}, nothing = {0};
	int idle = epoll_create1(EPOLL_CLOEXEC);
	pthread_t t;
	set = epoll_create1(EPOLL_CLOEXEC);
	signal(SIGALRM, too_late);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0 || epoll_ctl(idle, EPOLL_CTL_ADD, fd, &nothing) < 0 ||
	    shutdown(fd, SHUT_WR) < 0 || pthread_create(&t, NULL, want_nothing, &idle) != 0)
		die("two sets");
	for (long i = 0; i < times; i++) {
		alarm(PATIENCE); // a time-out would look once more, and find the byte
		if (write(ask, "", 1) != 1 || epoll_wait(set, &e, 1, -1) != 1 || read(fd, bytes, MOST) != 1)
			die("a byte");
		e.events = EPOLLIN | EPOLLONESHOT;
		if (epoll_ctl(set, EPOLL_CTL_MOD, fd, &e) < 0)
			die("once more");
	}
	alarm(0);
	printf("read %ld times\n", times);
}

static void *drive(void *none)
{
	struct epoll_event e;
	for (;;) {
		if (epoll_wait(set, &e, 1, -1) != 1 || !(e.events & EPOLLOUT))
			continue;
		pthread_mutex_lock(&lock);
		events++;
		pthread_cond_signal(&told);
		pthread_mutex_unlock(&lock);
	}
	return none;
}

static long so_far(void)
{
	pthread_mutex_lock(&lock);
	long n = events;
	pthread_mutex_unlock(&lock);
	return n;
}

// await returns when there were more events than n.
static void await(long n)
{
	struct timespec end;
	clock_gettime(CLOCK_REALTIME, &end);
	end.tv_sec += PATIENCE;
	pthread_mutex_lock(&lock);
	while (events == n)
		if ((errno = pthread_cond_timedwait(&told, &lock, &end)) != 0)
			die("no event, but room");
	pthread_mutex_unlock(&lock);
}

int main(int argc, char **argv)
{
	if (argc != 2 && argc != 4)
		return 2;
	bool writes = argc == 4;
	size_t all = writes ? (size_t)atoi(argv[1]) << 20 : 0, chunk = writes ? (size_t)atoi(argv[2]) : 1;
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	int one = 1, status, ask[2], listener = socket(AF_INET, SOCK_STREAM, 0);
	if (pipe2(ask, O_CLOEXEC) < 0 || chunk < 1 || chunk > MOST || bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &n) < 0)
		die("listen");
	pid_t child = fork();
	if (child == 0) {
		close(ask[1]);
		reader(&at, all, chunk, writes ? (unsigned)atoi(argv[3]) : 0, ask[0]);
	}
	int fd = accept(listener, NULL, NULL);
	setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
	for (int i = 0; i < ROUNDS; i++) { // enough for a lane
		receive(fd, PIECE);
		if (write(fd, bytes, PIECE) != PIECE)
			die("write");
	}
	if (!writes) {
		two_sets(fd, ask[1], atol(argv[1]));
		close(ask[1]);
		return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
	}
	struct epoll_event e = {.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET};
	pthread_t t;
	set = epoll_create1(EPOLL_CLOEXEC);
	if (fcntl(fd, F_SETFL, O_NONBLOCK) < 0 || epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0 || pthread_create(&t, NULL, drive, NULL) != 0)
		die("waiting");
	long waits = 0;
	while (all > 0) {
		long before = so_far();
		ssize_t k = write(fd, bytes, chunk < all ? chunk : all);
		if (k > 0) {
			all -= (size_t)k;
		} else if (errno == EAGAIN) {
			waits++;
			await(before);
		} else {
			die("write");
		}
	}
	printf("waited %ld times\n", waits);
	return waitpid(child, &status, 0) == child && status == 0 ? 0 : 1;
}
