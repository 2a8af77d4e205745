// SPDX-License-Identifier: Apache-2.0
//
// kicked: what calls give that a peer's signal (SIGURG, with a value; ext-ds.md) interrupts in their middle, and
// what the next ones do. It is sent by hand. Without the library nobody handles it, and nothing is interrupted.
#include <arpa/inet.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MUCH = 1 << 24, KICK = 0x45584453, MS = 1000 };

static char b[MUCH];
static pid_t main_one;
static const char *what;

static void check(int ok, const char *step)
{
	if (ok)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, step, strerror(errno));
	exit(1);
}

static void tell(ssize_t r) { printf("%s: %zd %s\n", what, r, r < 0 ? strerror(errno) : ""); }

static pid_t child(void)
{
	pid_t pid = fork();
	check(pid >= 0, "fork");
	return pid;
}

static void kick(void) { sigqueue(main_one, SIGURG, (union sigval){.sival_int = KICK}); }

// kicks kicks so often, each time after so long.
static pid_t kicks(int n, int ms)
{
	pid_t pid = child();
	if (pid)
		return pid;
	for (int i = 0; i < n; i++) {
		usleep(ms * MS);
		kick();
	}
	_exit(0);
}

static void ends(pid_t pid) { check(kill(pid, SIGKILL) == 0 && waitpid(pid, NULL, 0) == pid, "a child"); }

static int listener(struct sockaddr_in *a, int backlog)
{
	socklen_t n = sizeof *a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	*a = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	check(bind(l, (struct sockaddr *)a, n) == 0 && listen(l, backlog) == 0 && getsockname(l, (struct sockaddr *)a, &n) == 0, "listen");
	return l;
}

static void timed(int s, int name)
{
	check(setsockopt(s, SOL_SOCKET, name, &(struct timeval){0, 200 * MS}, sizeof(struct timeval)) == 0, "its time");
}

// talk gets a lane, so that the library handles the signal. Its other end is given back.
static pid_t talk(void)
{
	struct sockaddr_in a;
	int l = listener(&a, 1);
	pid_t pid = child();
	if (pid == 0) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(s, (struct sockaddr *)&a, sizeof a) == 0, "connect");
		while (read(s, b, 1) == 1 && write(s, b, 1) == 1)
			;
		_exit(0);
	}
	int s = accept(l, NULL, NULL);
	for (int i = 0; i < 1000; i++) {
		check(write(s, b, 1) == 1 && read(s, b, 1) == 1, "talk");
		if (i % 50 == 0)
			usleep(MS);
	}
	close(l);
	return pid;
}

// A reset that comes after the signal is the next call's to tell.
static void reset(bool sends)
{
	struct sockaddr_in a;
	int l = listener(&a, 1), s;
	pid_t pid = child();
	if (pid == 0) {
		s = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(s, (struct sockaddr *)&a, sizeof a) == 0 && (sends || write(s, b, 1000) == 1000), "connect");
		for (int i = 0; i < 3; i++) {
			usleep(100 * MS);
			kick();
		}
		usleep(100 * MS);
		setsockopt(s, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
		_exit(0);
	}
	s = accept(l, NULL, NULL);
	ssize_t r = sends ? send(s, b, MUCH, 0) : recv(s, b, MUCH, MSG_WAITALL);
	tell(sends ? r > 0 && r < MUCH : r);
	tell(sends ? send(s, b, 1, 0) : recv(s, b, 1, 0));
	close(s);
	close(l);
	waitpid(pid, NULL, 0);
}

// A time that a socket has is over while the signal still comes again and again.
static void time_is_up(int way)
{
	struct sockaddr_in a;
	int p[2], l = listener(&a, 0), s = -1;
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0 && write(p[1], b, 1000) == 1000, "socketpair");
	for (int i = 0; way == 3 && i < 3; i++) // until no more fit
		connect(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0), (struct sockaddr *)&a, sizeof a);
	check((s = socket(AF_INET, SOCK_STREAM, 0)) >= 0, "socket");
	timed(way == 0 || way == 1 ? p[0] : way == 2 ? l : s, way == 0 || way == 3 ? SO_SNDTIMEO : SO_RCVTIMEO);
	pid_t pid = kicks(100, 150);
	ssize_t r = way == 0 ? send(p[0], b, MUCH, 0) : way == 1 ? recv(p[0], b, MUCH, MSG_WAITALL)
		  : way == 2 ? accept(l, NULL, NULL) : connect(s, (struct sockaddr *)&a, sizeof a);
	tell(way == 0 ? r > 0 && r < MUCH : r);
	check(waitpid(pid, NULL, WNOHANG) == 0, "before that ends");
	ends(pid);
}

static void late_reader(int fd, int n, int pause_ms)
{
	usleep(400 * MS);
	for (ssize_t r, at = 0; at < n && (r = read(fd, b, MUCH / 32)) > 0; at += r)
		usleep(pause_ms * MS);
	sleep(1);
	_exit(0);
}

// One call has one completion, which does not end it when it is there before the rest has gone.
static void completions(void)
{
	struct sockaddr_in a;
	int l = listener(&a, 1), one = 1, s = socket(AF_INET, SOCK_STREAM, 0), r = -1;
	check(connect(s, (struct sockaddr *)&a, sizeof a) == 0 && (r = accept(l, NULL, NULL)) >= 0, "connect");
	check(setsockopt(s, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof one) == 0, "SO_ZEROCOPY");
	pid_t pid = child(), kicker;
	if (pid == 0)
		late_reader(r, MUCH, 10);
	kicker = kicks(12, 60);
	tell(send(s, b, MUCH, MSG_ZEROCOPY));
	usleep(300 * MS);
	unsigned last = 0;
	char room[200];
	struct msghdr h = {.msg_control = room, .msg_controllen = sizeof room};
	while (recvmsg(s, &h, MSG_ERRQUEUE | MSG_DONTWAIT) >= 0) {
		for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k)) {
			struct sock_extended_err e;
			memcpy(&e, CMSG_DATA(k), sizeof e);
			if (e.ee_origin == SO_EE_ORIGIN_ZEROCOPY && e.ee_data > last)
				last = e.ee_data;
		}
		h.msg_controllen = sizeof room;
	}
	tell(last);
	ends(pid);
	waitpid(kicker, NULL, 0);
	close(s);
	close(r);
	close(l);
}

static void nothing(int signo) { (void)signo; }

// A handler ends what has moved bytes, even with SA_RESTART.
static void handled(void)
{
	int p[2];
	check(pipe(p) == 0, "pipe");
	signal(SIGALRM, nothing);
	pid_t pid = kicks(1, 100);
	setitimer(ITIMER_REAL, &(struct itimerval){.it_value = {0, 300 * MS}}, NULL);
	tell(write(p[1], b, MUCH));
	signal(SIGALRM, SIG_DFL);
	alarm(60);
	waitpid(pid, NULL, 0);
}

static void messages(bool sends)
{
	enum { N = 500 };
	static struct iovec io[N];
	static struct mmsghdr m[N];
	int p[2];
	for (int i = 0; i < N; i++) {
		io[i] = (struct iovec){b + i, 1};
		m[i].msg_hdr = (struct msghdr){.msg_iov = &io[i], .msg_iovlen = 1};
	}
	check(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0, "socketpair");
	pid_t kicker = kicks(1, 200), pid = child();
	if (pid == 0 && sends)
		late_reader(p[1], N, 0);
	for (int i = 0; pid == 0 && i < 2; i++) {
		check(write(p[1], b, 1) == 1, "a message");
		usleep(400 * MS);
	}
	if (pid == 0)
		_exit(0);
	tell(sends ? sendmmsg(p[0], m, N, 0) : recvmmsg(p[0], m, 2, 0, NULL));
	tell(recv(p[0], b, 1, MSG_DONTWAIT));
	ends(pid);
	waitpid(kicker, NULL, 0);
}

// What is urgent ends a read.
static void urgent(void)
{
	struct sockaddr_in a;
	int l = listener(&a, 1), s = socket(AF_INET, SOCK_STREAM, 0), r = -1;
	check(connect(s, (struct sockaddr *)&a, sizeof a) == 0 && (r = accept(l, NULL, NULL)) >= 0 && write(s, b, 1000) == 1000, "connect");
	pid_t kicker = kicks(1, 100), pid = child();
	if (pid == 0) {
		usleep(300 * MS);
		send(s, "!", 1, MSG_OOB);
		usleep(200 * MS);
		check(write(s, b, 1000) == 1000, "behind it");
		sleep(1);
		_exit(0);
	}
	tell(recv(r, b, 2000, MSG_WAITALL));
	ends(pid);
	waitpid(kicker, NULL, 0);
}

int main(void)
{
	static const char *const times[] = {"send with a time", "recv with a time", "accept with a time", "connect with a time"};
	int p[2];
	signal(SIGPIPE, SIG_IGN);
	setvbuf(stdout, NULL, _IONBF, 0);
	alarm(60);
	main_one = getpid();
	what = "talk";
	pid_t peer = talk();
	for (int i = 0; i < 2; i++) {
		what = i ? "send, reset" : "recv, reset";
		reset(i);
	}
	for (int i = 0; i < 4; i++) {
		what = times[i];
		time_is_up(i);
	}
	what = "MSG_ZEROCOPY";
	completions();
	what = "write, a handler";
	handled();
	what = "sendmmsg";
	messages(true);
	what = "recvmmsg";
	messages(false);
	what = "recv, urgent";
	urgent();
	what = "recvmsg of NULL";
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, p) == 0, "socketpair");
	tell(recvmsg(p[0], NULL, MSG_DONTWAIT));
	ends(peer);
	return 0;
}
