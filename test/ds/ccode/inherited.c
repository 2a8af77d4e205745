// SPDX-License-Identifier: Apache-2.0
//
// inherited SEED [MILLISECONDS]: both ends of a connection read and write all the time, and verify
// what comes, while both start programs that inherit it: some end at once, some later, some are
// started by fork and exec, some start others; two threads may do so at once, and a handler of a
// signal that interrupts a call. At the end everything has to have arrived.
#include "rng.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REPORT = 100, LARGEST = 1 << 17 };

static uint64_t seed, end_ns, role;
static _Atomic uint64_t went, came;
static int s;
static bool handles; // a handler starts programs, too

static void fail(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	fprintf(stderr, "seed %lu, the %s: ", seed, role ? "client" : "server");
	vfprintf(stderr, format, ap);
	fprintf(stderr, " (%s)\n", strerror(errno));
	va_end(ap);
	_exit(1);
}

static uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// byte_at is byte number at of what this role writes.
static unsigned char byte_at(uint64_t who, uint64_t at) { return (unsigned char)((at * 0x9e3779b97f4a7c15u + who) >> 53); }

static void *write_all(void *arg)
{
	static unsigned char b[LARGEST];
	struct rng r = rng_of(seed, role, 1, 0);
	bool small = one_in(&r, 2);
	while (now_ns() < end_ns) {
		uint32_t n = 1 + rnd(&r, small || one_in(&r, 3) ? 500 : LARGEST);
		for (uint32_t i = 0; i < n; i++)
			b[i] = byte_at(role, went + i);
		for (uint32_t at = 0; at < n;) {
			ssize_t k = one_in(&r, 4) ? send(s, b + at, n - at, MSG_DONTWAIT) : write(s, b + at, n - at);
			if (k < 0 && errno == EAGAIN)
				poll(&(struct pollfd){s, POLLOUT, 0}, 1, -1);
			else if (k <= 0)
				fail("write at %lu", went);
			else
				at += (uint32_t)k;
		}
		went += n;
		if (one_in(&r, 20))
			usleep(rnd(&r, 2000));
	}
	if (shutdown(s, SHUT_WR) < 0)
		fail("shutdown");
	return arg;
}

static void *read_all(void *arg)
{
	static unsigned char b[LARGEST];
	struct rng r = rng_of(seed, role, 2, 0);
	struct epoll_event ev = {.events = one_in(&r, 2) ? EPOLLIN : EPOLLIN | EPOLLET};
	int set = epoll_create1(EPOLL_CLOEXEC);
	uint32_t way = rnd(&r, 3);
	if (epoll_ctl(set, EPOLL_CTL_ADD, s, &ev) < 0)
		fail("epoll_ctl");
	for (bool dry = true;;) {
		uint32_t n = 1 + rnd(&r, one_in(&r, 2) ? 1000 : LARGEST);
		int flags = one_in(&r, 20) ? MSG_PEEK : 0;
		if (way == 1 && poll(&(struct pollfd){s, POLLIN, 0}, 1, -1) != 1 && errno != EINTR)
			fail("poll");
		if (way == 2 && dry && epoll_wait(set, &ev, 1, -1) != 1 && errno != EINTR)
			fail("epoll_wait");
		ssize_t k = recv(s, b, n, flags | (way ? MSG_DONTWAIT : 0));
		dry = k < 0 && errno == EAGAIN;
		if (dry && way)
			continue;
		if (k == 0)
			break;
		if (k < 0)
			fail("recv at %lu", came);
		for (ssize_t i = 0; i < k; i++)
			if (b[i] != byte_at(!role, came + (uint64_t)i))
				fail("byte %lu is wrong", came + (uint64_t)i);
		if (!flags)
			came += (uint64_t)k;
		if (one_in(&r, 100))
			usleep(rnd(&r, 3000));
	}
	close(set);
	return arg;
}

// handler starts a program and waits for it. All that it calls is async-signal-safe, but posix_spawn, which TCP takes as well.
static void handler(int signo)
{
	static _Atomic unsigned n;
	char *argv[] = {"true", NULL};
	pid_t pid = -1;
	int saved = errno;
	if (n++ % 2)
		posix_spawn(&pid, "/bin/true", NULL, NULL, argv, environ);
	else if ((pid = fork()) == 0) {
		execve("/bin/true", argv, environ);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	errno = saved;
	(void)signo;
}

static pthread_t writer, reader;

static void start(struct rng *r)
{
	char command[64];
	int status;
	pid_t pid;
	if (handles && one_in(r, 2)) {
		pthread_kill(one_in(r, 2) ? reader : writer, SIGUSR1);
		return;
	}
	switch (rnd(r, 5)) {
	case 0:
		if (system(":") != 0)
			fail("system");
		break;
	case 1:
		snprintf(command, sizeof command, "sleep 0.0%02u &", rnd(r, 100));
		if (system(command) != 0)
			fail("system");
		break;
	case 2: {
		FILE *f = popen("cat >/dev/null", "w");
		if (!f || pclose(f) != 0)
			fail("popen");
		break;
	}
	case 3:
		if ((pid = fork()) == 0) {
			usleep(rnd(r, 5000));
			execlp("true", "true", (char *)NULL);
			_exit(1);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status)
			fail("fork");
		break;
	case 4: {
		char *argv[] = {"true", NULL};
		if ((errno = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ)) != 0 || waitpid(pid, &status, 0) != pid || status)
			fail("posix_spawn");
	}
	}
}

static int one, two;

static void *start_all(void *which)
{
	struct rng r = rng_of(seed, role, 3, which == &two);
	while (now_ns() < end_ns) {
		usleep(rnd(&r, one_in(&r, 2) ? 3000 : 200000));
		start(&r);
	}
	return which;
}

static void play(void)
{
	struct rng r = rng_of(seed, role, 4, 0);
	bool starts = rnd(&r, 4) > 0 || role == 0, both = starts && one_in(&r, 3);
	pthread_t other;
	handles = one_in(&r, 3);
	if (handles)
		sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
	if (pthread_create(&writer, NULL, write_all, NULL) || pthread_create(&reader, NULL, read_all, NULL) ||
	    (both && pthread_create(&other, NULL, start_all, &two)))
		fail("no thread");
	if (starts)
		start_all(&one);
	if (both)
		pthread_join(other, NULL);
	pthread_join(writer, NULL);
	pthread_join(reader, NULL);
}

int main(int argc, char **argv)
{
	alarm(60);
	if (argc < 2)
		return 2;
	seed = strtoull(argv[1], NULL, 10);
	role = argc == 5;
	end_ns = role ? strtoull(argv[3], NULL, 10) : now_ns() + 1000000u * strtoull(argc > 2 ? argv[2] : "1000", NULL, 10);
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	if (role) {
		uint64_t report[2];
		fcntl(REPORT, F_SETFD, FD_CLOEXEC);
		a.sin_port = (in_port_t)atoi(argv[4]);
		s = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(s, (struct sockaddr *)&a, n) < 0)
			fail("connect");
		play();
		report[0] = went;
		report[1] = came;
		return write(REPORT, report, sizeof report) != sizeof report;
	}
	uint64_t report[2];
	char end[32], port[16];
	int p[2], status, l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (pipe2(p, O_CLOEXEC) < 0 || bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0)
		fail("listen");
	snprintf(end, sizeof end, "%lu", end_ns);
	snprintf(port, sizeof port, "%d", a.sin_port);
	pid_t pid = fork();
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		dup2(p[1], REPORT);
		execl(argv[0], argv[0], argv[1], "client", end, port, (char *)NULL);
		_exit(1);
	}
	if ((s = accept(l, NULL, NULL)) < 0)
		fail("accept");
	play();
	close(p[1]);
	if (waitpid(pid, &status, 0) != pid || status || read(p[0], report, sizeof report) != sizeof report)
		fail("the client ends with %#x", status);
	if (report[0] != came || report[1] != went)
		fail("%lu of %lu bytes came, and %lu of %lu", came, report[0], report[1], went);
	return 0;
}
