// SPDX-License-Identifier: Apache-2.0
//
// alone sleeps again and again until one connection has something to read:
//
//	alone CALL	looks by what system calls the library sleeps: read, recv with a
//			time, poll, poll with a time and POLLPRI, the same where there is no
//			epoll_pwait2, select
//	alone turns	sleeps on two connections in turn, whose peers die one after the other
//	alone handlers	sleeps on one while signal handlers sleep on another
//
// Built with -DCOUNTER it is what is preloaded behind the library and counts.
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

#ifdef COUNTER

// Sleeps by one call, sleeps that more calls belong to, and refusals. What does not sleep is not
// counted: how often the kernel is asked, and whoever sleeps is woken in vain, depends on how long
// all takes.
int sleeps, polled, refused, old_kernel;

#define COUNT(name, params, args, of, does_sleep) \
	int name params \
	{ \
		static int(*next) params; \
		if (!next) \
			*(void **)&next = dlsym(RTLD_NEXT, #name); \
		if (does_sleep) \
			__atomic_add_fetch(&of, 1, __ATOMIC_RELAXED); \
		return next args; \
	}
COUNT(poll, (struct pollfd * fds, nfds_t n, int ms), (fds, n, ms), polled, n > 0 && ms != 0)
COUNT(ppoll, (struct pollfd * fds, nfds_t n, const struct timespec *t, const sigset_t *m), (fds, n, t, m), polled,
      n > 0 && (!t || t->tv_sec || t->tv_nsec))
COUNT(epoll_pwait, (int fd, struct epoll_event *e, int n, int ms, const sigset_t *m), (fd, e, n, ms, m), sleeps, ms != 0)

int epoll_pwait2(int fd, struct epoll_event *e, int n, const struct timespec *t, const sigset_t *m)
{
	static int (*next)(int, struct epoll_event *, int, const struct timespec *, const sigset_t *);
	if (!next)
		*(void **)&next = dlsym(RTLD_NEXT, "epoll_pwait2");
	__atomic_add_fetch(old_kernel ? &refused : &sleeps, 1, __ATOMIC_RELAXED);
	if (old_kernel) {
		errno = ENOSYS;
		return -1;
	}
	return next(fd, e, n, t, m);
}

#else

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { warm = 200, rounds = 200, few = rounds / 10 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %m\n", what);
	exit(1);
}

// A peer answers each byte, from some time on only after a while in which we are asleep. Then it is
// the child of the process that it was, which lives on without the connection when that is killed:
// nothing tells the end but the TCP socket.
struct peer {
	pid_t pid, parent;
	int fd;
};

static void echo(int fd, int us, int times)
{
	char b;
	while (times-- > 0 && read(fd, &b, 1) == 1) {
		if (us > 0)
			usleep((useconds_t)us);
		check(write(fd, &b, 1) == 1, "answer");
	}
}

static struct peer begin(int us)
{
	struct peer p;
	int child[2];
	check(pipe(child) == 0, "pipe");
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(l >= 0 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	p.parent = fork();
	if (p.parent == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		int fd = accept(l, NULL, NULL);
		check(fd >= 0, "accept");
		close(l);
		echo(fd, 0, warm);
		pid_t pid = fork();
		if (pid == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			echo(fd, us, 1000000);
			pause(); // until it is killed
		}
		close(fd);
		check(write(child[1], &pid, sizeof pid) == sizeof pid, "child");
		pause();
	}
	close(l);
	p.fd = socket(AF_INET, SOCK_STREAM, 0);
	check(p.fd >= 0 && connect(p.fd, (struct sockaddr *)&a, n) == 0, "connect");
	char b = 'w';
	for (int i = 0; i < warm; i++)
		check(write(p.fd, &b, 1) == 1 && read(p.fd, &b, 1) == 1, "warm");
	check(read(child[0], &p.pid, sizeof p.pid) == sizeof p.pid, "child's number");
	close(child[0]);
	close(child[1]);
	return p;
}

static void until(int fd, const char *how)
{
	struct pollfd p = {fd, POLLIN, 0};
	if (strcmp(how, "poll") == 0) {
		check(poll(&p, 1, -1) == 1, "poll");
	} else if (strcmp(how, "poll-timed") == 0) {
		p.events |= POLLPRI;
		check(poll(&p, 1, 10000) == 1 && p.revents == POLLIN, "poll, timed");
	} else if (strcmp(how, "select") == 0) {
		fd_set s;
		FD_ZERO(&s);
		FD_SET(fd, &s);
		check(select(fd + 1, &s, NULL, NULL, NULL) == 1, "select");
	}
}

static void round_trip(int fd, const char *how)
{
	char b = 'x';
	check(write(fd, &b, 1) == 1, "write");
	until(fd, how);
	check(read(fd, &b, 1) == 1, "read");
}

// ends: the peer's death is told at once.
static void ends(struct peer p, const char *how)
{
	char b;
	pid_t killer = fork();
	if (killer == 0) {
		usleep(20000);
		kill(p.pid, SIGKILL);
		_exit(0);
	}
	until(p.fd, how);
	check(read(p.fd, &b, 1) == 0, "the end");
	close(p.fd);
	kill(p.parent, SIGKILL);
	waitpid(killer, NULL, 0);
}

static void count(const char *how)
{
	int *sleeps = dlsym(RTLD_DEFAULT, "sleeps"), *polled = dlsym(RTLD_DEFAULT, "polled"), *refused = dlsym(RTLD_DEFAULT, "refused"),
	    *old = dlsym(RTLD_DEFAULT, "old_kernel");
	check(sleeps && polled && refused && old, "counting");
	if (strcmp(how, "old-kernel") == 0) {
		*old = 1;
		how = "poll-timed";
	}
	struct peer p = begin(300);
	struct timeval t = {10, 0};
	if (strcmp(how, "recv-timed") == 0)
		check(setsockopt(p.fd, SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t) == 0, "SO_RCVTIMEO");
	for (int i = 0; i < 4; i++)
		round_trip(p.fd, how);
	int by_one = *sleeps, by_more = *polled;
	while (*sleeps - by_one + *polled - by_more < rounds) // it may be late, and find the answer there
		round_trip(p.fd, how);
	by_one = *sleeps - by_one;
	by_more = *polled - by_more;
	ends(p, how);
	printf("%d sleeps by one call, %d by more, %d calls refused\n", by_one, by_more, *refused);
	if (*old ? by_one || !*refused || *refused > few : by_more > few)
		exit(2);
}

static void turns(void)
{
	struct peer p[3] = {begin(100), begin(100), begin(100)};
	for (int i = 0; i < 60; i++) {
		const char *how = i % 5 == 0 ? "poll" : i % 7 == 0 ? "poll-timed" : "read";
		round_trip(p[i / 2 % 2].fd, how); // each of two twice in turn
		if (i % 9 == 0)
			round_trip(p[2].fd, how);
	}
	round_trip(p[0].fd, "read"); // has p[0] in the perch
	round_trip(p[0].fd, "read");
	round_trip(p[0].fd, "read");
	kill(p[0].pid, SIGKILL); // tells it while we sleep on another one
	usleep(20000);
	round_trip(p[1].fd, "read");
	round_trip(p[1].fd, "read");
	char b;
	check(read(p[0].fd, &b, 1) == 0, "the first one's end");
	ends(p[1], "read");
	int copy = dup(p[2].fd), number = p[2].fd; // the same number, closed and opened again
	for (int i = 0; i < 6; i++) {
		round_trip(number, "read");
		if (i == 3)
			check(close(number) == 0 && dup2(copy, number) == number, "dup2");
	}
	ends(p[2], "read");
}

static int other;
static volatile int handled, gap_us;

static void handler(int signo)
{
	int saved = errno;
	struct itimerval again = {{0, 0}, {0, gap_us}};
	(void)signo;
	round_trip(other, handled++ % 2 ? "read" : "poll");
	setitimer(ITIMER_REAL, &again, NULL);
	errno = saved;
}

static void handlers(void)
{
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigemptyset(&a.sa_mask);
	check(sigaction(SIGALRM, &a, NULL) == 0, "sigaction");
	for (int i = 0; i < 12; i++) {
		struct peer p = begin(50), q = begin(20);
		other = q.fd;
		for (int k = 0; k < 4; k++)
			round_trip(p.fd, "read");
		gap_us = 100 + 13 * i;
		raise(SIGALRM);
		for (int k = 0; k < 300; k++)
			round_trip(p.fd, "read");
		ends(p, "read");
		gap_us = 0; // no more
		struct itimerval never = {0};
		setitimer(ITIMER_REAL, &never, NULL);
		kill(q.parent, SIGKILL);
		close(q.fd);
	}
	check(handled > 100, "handlers ran");
}

int main(int argc, char **argv)
{
	signal(SIGPIPE, SIG_IGN);
	if (argc != 2)
		return 3;
	if (strcmp(argv[1], "turns") == 0)
		turns();
	else if (strcmp(argv[1], "handlers") == 0)
		handlers();
	else
		count(argv[1]);
	return 0;
}

#endif
