// SPDX-License-Identifier: Apache-2.0
//
// Programs that have the kernel kill them for all system calls but those that they name. A server and a client
// exchange bytes over one connection and then over another; meanwhile some set such a filter, of what they need
// by TCP. A second thread of the server answers on a third connection from before.
//
//	confined BY WHO...	BY: prctl, raw (the same by syscall(2)), or seccomp, which sets it for all threads
//				WHO: server, client: in the middle of the first connection; first: the server, before it
//
// Exit status: 0, 1 with what is wrong on stderr, 77 if the kernel has no filters.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { EXCHANGES = 300, CONFINES = 100, LONGEST = 60000, NO_FILTERS = 77 };

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "confined: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static const int needed[] = {
	SYS_read, SYS_write, SYS_sendto, SYS_recvfrom, SYS_close, SYS_accept, SYS_accept4, SYS_exit_group,
	SYS_clone, SYS_set_robust_list, SYS_wait4, // fork
	SYS_ppoll, SYS_epoll_pwait, SYS_kill,
#ifdef SYS_fork
	SYS_fork, SYS_poll, SYS_epoll_wait,
#endif
	SYS_rt_sigprocmask, SYS_gettid, SYS_set_tid_address, // musl's fork
};

static void confine(const char *by)
{
	enum { CALLS = sizeof needed / sizeof *needed };
	struct sock_filter f[2 * CALLS + 2] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr))};
	struct sock_fprog all = {sizeof f / sizeof *f, f};
	for (int i = 0; i < CALLS; i++) {
		f[2 * i + 1] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)needed[i], 0, 1);
		f[2 * i + 2] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
	}
	f[2 * CALLS + 1] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
	pid_t own = getpid();
	check(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, "PR_SET_NO_NEW_PRIVS");
	if (strcmp(by, "seccomp") == 0)
		check(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &all) == 0, "seccomp");
	else if (strcmp(by, "raw") == 0)
		check(syscall(SYS_prctl, PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all, 0, 0) == 0, "raw prctl");
	else
		check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &all) == 0, "prctl");
	kill(own, SIGURG); // as a peer may that asks late; the program has no handler, from which it could not return
}

// answer sends back what comes until the end, asleep in `set` or in read. If `by`, it confines itself with bytes unread.
static void answer(int fd, int set, const char *by)
{
	char b[LONGEST];
	struct epoll_event e;
	for (int i = 0;; i++) {
		check(set < 0 || epoll_wait(set, &e, 1, -1) == 1, "epoll_wait");
		if (i == CONFINES && by)
			confine(by);
		ssize_t n = read(fd, b, sizeof b);
		check(n >= 0, "the server's read");
		if (n == 0)
			break;
		check(write(fd, b, (size_t)n) == n, "the server's write");
	}
	close(fd);
}

static void ask(int fd, const char *by)
{
	static char b[LONGEST], got[LONGEST];
	for (int i = 0; i < EXCHANGES; i++) {
		size_t n = 1 + (size_t)i * 997 % sizeof b, in = 0;
		memset(b, i + 1, n);
		check(write(fd, b, n) == (ssize_t)n, "the client's write");
		if (i == 2 * CONFINES && by)
			confine(by);
		for (ssize_t k; in < n; in += (size_t)k) {
			struct pollfd p = {fd, POLLIN, 0};
			check(poll(&p, 1, -1) == 1, "poll");
			check((k = read(fd, got + in, n - in)) > 0, "the client's read");
		}
		check(memcmp(b, got, n) == 0, "what came back");
	}
}

static void *beside(void *fd)
{
	answer(*(int *)fd, -1, NULL);
	poll(NULL, 0, -1); // the end of a thread takes other calls
	return NULL;
}

static void serve(int l, const char *by, int middle, int first)
{
	int third = accept(l, NULL, NULL), set = epoll_create1(0);
	struct epoll_event e = {.events = EPOLLIN};
	pthread_t t;
	check(third >= 0 && set >= 0 && pthread_create(&t, NULL, beside, &third) == 0, "the third connection");
	int fd = accept(l, NULL, NULL);
	check(fd >= 0 && epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) == 0, "the first connection");
	if (first)
		confine(by);
	answer(fd, set, middle ? by : NULL);
	pid_t child = fork(); // which inherits all, and makes a call of its own
	if (child == 0)
		_exit(close(set));
	int status;
	check(child > 0 && waitpid(child, &status, 0) == child && status == 0, "the server's child");
	check((fd = accept(l, NULL, NULL)) >= 0, "the second connection");
	answer(fd, -1, NULL);
}

static int reach(const struct sockaddr_in *a)
{
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(fd >= 0 && connect(fd, (const struct sockaddr *)a, sizeof *a) == 0, "connect");
	return fd;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int server = 0, client = 0, first = 0, bad = 0, status;
	if (prctl(PR_GET_SECCOMP) < 0)
		return NO_FILTERS;
	for (int i = 2; i < argc; i++) {
		server |= strcmp(argv[i], "server") == 0;
		client |= strcmp(argv[i], "client") == 0;
		first |= strcmp(argv[i], "first") == 0;
	}
	alarm(60);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	check(argc > 2 && bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 3) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t other = fork();
	if (other == 0) {
		int third = reach(&a), fd = reach(&a), second = reach(&a);
		ask(third, NULL);
		ask(fd, client ? argv[1] : NULL);
		close(fd);
		ask(third, NULL);
		ask(second, NULL);
		_exit(0);
	}
	pid_t served = fork();
	if (served == 0) {
		serve(l, argv[1], server, first);
		_exit(0);
	}
	for (int i = 0; i < 2; i++) {
		pid_t who = wait(&status);
		if (status != 0)
			fprintf(stderr, "confined: the %s has ended with status %#x\n", who == other ? "client" : "server", (unsigned)status);
		bad |= status;
	}
	return bad != 0;
}
