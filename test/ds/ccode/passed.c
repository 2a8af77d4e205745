// SPDX-License-Identifier: Apache-2.0
//
// passed: three programs of their own, 0 to 2, pass a connection to and fro whose other end is here.
//
//	passed STEP...
//
//	0a  0 accepts            0>1 0 passes it to 1      0f 0 forks a child that holds it
//	0c  0 connects           1<  1 takes what came     0F that is killed
//	0t  0 answers 200 times  1?  1 takes a look at it  0x 0 spawns a program that holds it
//	0u  0 has not read this  0.  0 closes it           0X that is killed
//	0r  0 reads this         0+  0 copies it           0k 0 is killed
//	0o  0 asks for stamps    0!  0 cannot pass it on, for want of room
//	0g  0 asks for SIGIO     0i has had one
//	0e  0 forks a child that becomes such a program, 0X likewise
//	0p  0 spawns one that starts another and ends, 0q one that closes all that it inherits
//	0y  0 has the shell do nothing, 0Y read a byte from it, 0Z write one to it (system)
//	0m1 0 spawns a program that passes it to 1 and ends
//	0h  0 has the shell do nothing while we are stopped
//	0z  0 closes its descriptor 0, so that the connection that comes next is that
//	0T  talks as 0t until there is a lane, with the library, for 10 s at most; 0L for 100 s
//	0s  nobody does anything for a while
//	0W  we sleep, in each way that there is, while 0 has the shell do nothing
//
// 0>>1 and 1<< do it by sendmmsg and recvmmsg, 0>!1 and 1<! by syscall(2). After each talk a line says whether
// its last bytes came by TCP. Each byte is answered by the next value, in order.
#include <errno.h>
#include <fcntl.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { AGENTS = 3, MAIL = 100, ORDERS = 110, ROUNDS = 200, MOST = 64, TIME = 150 };

extern char **environ;

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

struct order {
	char what, way;
	int arg;
};

// An agent's own.
static int held[MOST], holds, listener;
static pid_t child;

static volatile sig_atomic_t tells;
static void told(int signo) { tells = signo; }

static int now(void)
{
	check(holds > 0, "a connection");
	return held[holds - 1];
}

static int more(int fd)
{
	check(fd >= 0 && holds < MOST, "another descriptor");
	held[holds++] = fd;
	return 0;
}

static struct mmsghdr *message(int fd)
{
	static union {
		char space[CMSG_SPACE(sizeof fd)];
		struct cmsghdr align;
	} u;
	static char byte;
	static struct iovec v = {&byte, 1};
	static struct mmsghdr m;
	memset(&u, 0, sizeof u);
	m.msg_hdr = (struct msghdr){.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.space, .msg_controllen = sizeof u.space};
	*CMSG_FIRSTHDR(&m.msg_hdr) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m.msg_hdr)), &fd, sizeof fd);
	return &m;
}

// try passes it on where there is no room.
static int try(void)
{
	struct mmsghdr *m = message(now());
	int p[2];
	check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, p) == 0, "socketpair");
	while (send(p[0], m, sizeof *m, 0) > 0)
		;
	check(sendmsg(p[0], &m->msg_hdr, 0) < 0, "a full socket");
	close(p[0]);
	close(p[1]);
	return 0;
}

static int pass(int to, char way)
{
	struct mmsghdr *m = message(now());
	to = MAIL + 2 * to;
	return way == '>' ? sendmmsg(to, m, 1, 0) : way == '!' ? (int)syscall(SYS_sendmsg, to, &m->msg_hdr, 0) : (int)sendmsg(to, &m->msg_hdr, 0);
}

static int take(int us, char way, int flags)
{
	int fd = -1, from = MAIL + 2 * us + 1;
	struct mmsghdr *m = message(fd);
	int got = way == '<'   ? recvmmsg(from, m, 1, flags, NULL)
		  : way == '!' ? (int)syscall(SYS_recvmsg, from, &m->msg_hdr, flags)
			       : (int)recvmsg(from, &m->msg_hdr, flags);
	check(got == 1 && CMSG_FIRSTHDR(&m->msg_hdr), "a message");
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m->msg_hdr)), sizeof fd);
	return more(fd);
}

static int answer(int n, int write_too)
{
	unsigned char b;
	for (int i = 0; i < n; i++) {
		check(read(now(), &b, 1) == 1, "read");
		b++;
		check(!write_too || write(now(), &b, 1) == 1, "write");
	}
	return 0;
}

static char *sleeps[] = {"sleep", "1000", NULL};

static pid_t spawned(char *argv[])
{
	check(posix_spawnp(&child, argv[0], NULL, NULL, argv, environ) == 0, "posix_spawn");
	return child;
}

static int executed(void)
{
	char none;
	int p[2];
	check(pipe2(p, O_CLOEXEC) == 0, "a pipe");
	if ((child = fork()) == 0) {
		execvp(sleeps[0], sleeps);
		_exit(1);
	}
	close(p[1]);
	check(child > 0 && read(p[0], &none, 1) == 0, "exec");
	return close(p[0]);
}

// orphaned spawns a program that leaves one behind, which is the child from then on.
static int orphaned(void)
{
	char *argv[] = {"sh", "-c", "sleep 1000 >/dev/null & echo $!", NULL}, line[32] = "";
	posix_spawn_file_actions_t a;
	int p[2];
	pid_t first;
	check(pipe2(p, O_CLOEXEC) == 0 && posix_spawn_file_actions_init(&a) == 0 && posix_spawn_file_actions_adddup2(&a, p[1], 1) == 0, "a pipe");
	check(posix_spawnp(&first, argv[0], &a, NULL, argv, environ) == 0, "posix_spawn");
	close(p[1]);
	check(read(p[0], line, sizeof line - 1) > 0 && waitpid(first, NULL, 0) == first, "its child");
	close(p[0]);
	posix_spawn_file_actions_destroy(&a);
	return (child = atoi(line)) <= 0;
}

// passed_by spawns this program to pass it on.
static int passed_by(int to)
{
	char fd[8], port[8];
	int status;
	snprintf(fd, sizeof fd, "%d", now());
	snprintf(port, sizeof port, "%d", MAIL + 2 * to);
	pid_t pid = spawned((char *[]){"/proc/self/exe", "pass", fd, port, NULL});
	child = 0;
	return waitpid(pid, &status, 0) != pid || status != 0;
}

static int shell(const char *format)
{
	char command[100];
	snprintf(command, sizeof command, format, now());
	return system(command);
}

static int obey(int us, struct order o)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK), .sin_port = (in_port_t)o.arg};
	socklen_t n = sizeof a;
	int stamps = 1 << 4; // SOF_TIMESTAMPING_SOFTWARE
	switch (o.what) {
	case 'l':
		listener = socket(AF_INET, SOCK_STREAM, 0);
		check(bind(listener, (struct sockaddr *)&a, n) == 0 && listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&a, &n) == 0, "listen");
		return a.sin_port;
	case 'a':
		return more(accept(listener, NULL, NULL));
	case 'c':
		more(socket(AF_INET, SOCK_STREAM, 0));
		return connect(now(), (struct sockaddr *)&a, n);
	case '>':
		return pass(o.arg, o.way) - 1;
	case '!':
		return try();
	case '<':
		return take(us, o.way, 0);
	case '?':
		return take(us, 0, MSG_PEEK);
	case '.':
		return close(held[--holds]);
	case '+':
		return more(dup(now()));
	case 't':
		return answer(o.arg, 1);
	case 'r':
		return answer(o.arg, 0);
	case 'o':
		return setsockopt(now(), SOL_SOCKET, SO_TIMESTAMPING, &stamps, sizeof stamps);
	case 'g':
		signal(SIGIO, told);
		return fcntl(now(), F_SETOWN, getpid()) < 0 || fcntl(now(), F_SETFL, O_ASYNC) < 0;
	case 'i':
		return !tells;
	case 'f':
		if ((child = fork()) == 0)
			for (;;)
				pause();
		return child < 0;
	case 'e':
		return executed();
	case 'x':
		return spawned(sleeps) < 0;
	case 'q':
		return spawned((char *[]){"sh", "-c", "for n in 3 4 5 6 7 8 9; do eval \"exec $n>&-\"; done; exec sleep 1000", NULL}) < 0;
	case 'p':
		return orphaned();
	case 'm':
		return passed_by(o.arg);
	case 'y':
		return shell(":");
	case 'h':
		return kill(getppid(), SIGSTOP) < 0 || shell(":") != 0 || kill(getppid(), SIGCONT) < 0;
	case 'z':
		return close(STDIN_FILENO);
	case 'Y':
		return shell("head -c 1 <&%d >/dev/null");
	case 'Z':
		return shell("printf x >&%d");
	case 'F':
	case 'X':
		kill(child, SIGKILL);
		return waitpid(child, NULL, 0) != child && errno != ECHILD;
	}
	return -1;
}

static int agent(int us)
{
	struct order o;
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	while (read(ORDERS + us, &o, sizeof o) == sizeof o) {
		int r = obey(us, o);
		check(write(ORDERS + us, &r, sizeof r) == sizeof r, "report");
	}
	if (child)
		kill(child, SIGKILL);
	return 0;
}

static int orders[AGENTS], s = -1;
static pid_t agents[AGENTS];
static unsigned char out, in; // next values
static int ahead;
static char byte_of[1];

static int begun(int to, char what, char way, int arg)
{
	struct order o = {what, way, arg};
	return write(orders[to], &o, sizeof o) == sizeof o;
}

static int done(int to)
{
	int r;
	check(read(orders[to], &r, sizeof r) == sizeof r, "an agent's report");
	return r;
}

static int order_by(int to, char what, char way, int arg)
{
	check(begun(to, what, way, arg), "order");
	return done(to);
}

static int order(int to, char what, int arg) { return order_by(to, what, 0, arg); }

static void say(void)
{
	check(write(s, &out, 1) == 1, "write");
	out++;
}

static void hear(void)
{
	unsigned char b;
	check(read(s, &b, 1) == 1, "read");
	if (b != (unsigned char)(in + 1)) {
		fprintf(stderr, "%d is answered by %d\n", in, b);
		exit(1);
	}
	in++;
}

// by_tcp is how many bytes the kernel has moved.
static uint64_t by_tcp(void)
{
	struct tcp_info t;
	socklen_t n = sizeof t;
	check(getsockopt(s, IPPROTO_TCP, TCP_INFO, &t, &n) == 0, "TCP_INFO");
	return t.tcpi_bytes_received + t.tcpi_bytes_sent;
}

// rounds talks, and tells whether the last bytes came by lanes.
static int rounds(int with)
{
	uint64_t before = 0;
	check(begun(with, 't', 0, ahead + ROUNDS), "order");
	for (int i = 0; i < ROUNDS; i++) {
		if (i == ROUNDS - 10)
			before = by_tcp();
		say();
		hear();
	}
	for (; ahead > 0; ahead--)
		hear();
	check(done(with) == 0, "what an agent does");
	return by_tcp() == before;
}

static void talk(int with, int seconds)
{
	static int n;
	const char *library = getenv("LD_PRELOAD");
	time_t end = time(NULL) + seconds;
	int lane;
	while (!(lane = rounds(with)) && library && *library && time(NULL) < end)
		usleep(seconds > 10 ? 500000 : 10000);
	fprintf(stderr, "talk %d by %s\n", ++n, lane ? "lanes" : "TCP");
}

#include "sleeps.h"

static void sleep_all(int who)
{
	enum { NS = 100000000 };
	struct timespec begin, end;
	for (int way = 0, more = 1; more; way++) {
		talk(who, 10);
		check(begun(who, 'y', 0, 0), "order");
		clock_gettime(CLOCK_MONOTONIC, &begin);
		more = sleeps_by(way, NS);
		clock_gettime(CLOCK_MONOTONIC, &end);
		int64_t took = (end.tv_sec - begin.tv_sec) * 1000000000ll + end.tv_nsec - begin.tv_nsec;
		check(!more || took >= NS - 1000000, "the time that it was to take");
		check(done(who) == 0, "what an agent does");
	}
}

static void step(const char *text)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int who = text[0] - '0', l;
	check(who >= 0 && who < AGENTS && text[1], text);
	switch (text[1]) {
	case 'a':
		s = socket(AF_INET, SOCK_STREAM, 0);
		a.sin_port = (in_port_t)order(who, 'l', 0);
		check(connect(s, (struct sockaddr *)&a, n) == 0 && order(who, 'a', 0) == 0, text);
		return;
	case 'c':
		l = socket(AF_INET, SOCK_STREAM, 0);
		check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, text);
		check(order(who, 'c', a.sin_port) == 0 && (s = accept(l, NULL, NULL)) >= 0, text);
		return;
	case 't':
	case 'T':
	case 'L':
		talk(who, text[1] == 't' ? 0 : text[1] == 'T' ? 10 : 100);
		return;
	case 's':
		usleep(200000);
		return;
	case 'W':
		sleep_all(who);
		return;
	case 'Y':
		check(write(s, "x", 1) == 1 && order(who, 'Y', 0) == 0, text);
		return;
	case 'Z':
		check(order(who, 'Z', 0) == 0 && read(s, byte_of, 1) == 1 && byte_of[0] == 'x', text);
		return;
	case 'u':
		say();
		ahead++;
		return;
	case 'r':
		say();
		in++;
		check(order(who, 'r', 1) == 0, text);
		return;
	case 'k':
		kill(agents[who], SIGKILL);
		check(waitpid(agents[who], NULL, 0) == agents[who], text);
		return;
	case '>':
		l = text[3] != 0;
		check(order_by(who, '>', l ? text[2] : 0, text[2 + l] - '0') == 0, text);
		return;
	case 'm':
		check(order(who, 'm', text[2] - '0') == 0, text);
		return;
	case '<':
		check(order_by(who, '<', text[2], 0) == 0, text);
		return;
	default:
		check(order(who, text[1], 0) == 0, text);
	}
}

int main(int argc, char **argv)
{
	if (argc == 2 && argv[1][1] == 0)
		return agent(argv[1][0] - '0');
	if (argc == 4 && strcmp(argv[1], "pass") == 0)
		return sendmsg(atoi(argv[3]), &message(atoi(argv[2]))->msg_hdr, 0) != 1;
	int p[2];
	alarm(TIME);
	for (int i = 0; i < AGENTS; i++) {
		check(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0 && dup2(p[0], MAIL + 2 * i) >= 0 && dup2(p[1], MAIL + 2 * i + 1) >= 0, "socketpair");
		close(p[0]);
		close(p[1]);
	}
	for (int i = 0; i < AGENTS; i++) {
		char name[] = {(char)('0' + i), 0}, *args[] = {argv[0], name, NULL};
		check(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) == 0, "socketpair");
		orders[i] = p[0];
		if ((agents[i] = fork()) == 0) {
			dup2(p[1], ORDERS + i);
			execv(argv[0], args);
			_exit(1);
		}
		close(p[1]);
	}
	for (int i = 0; i < 2 * AGENTS; i++)
		close(MAIL + i); // what nobody took is gone with the last agent
	for (int i = 1; i < argc; i++)
		step(argv[i]);
	for (int i = 0; i < AGENTS; i++)
		close(orders[i]);
	int status, failed = 0;
	while (wait(&status) > 0)
		failed |= WIFEXITED(status) && WEXITSTATUS(status);
	return failed;
}
