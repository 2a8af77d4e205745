// SPDX-License-Identifier: Apache-2.0
//
// Who is told of what, when several threads or processes sleep on a connection and others use it:
//
//	told JOBS [NAME]
//
// Each scene says in a line what it saw, on TCP or on lanes, and NOT TOLD of what has not come
// in PATIENCE ms. JOBS of them are played at once, since they mostly sleep; NAME is a part of
// the names of those to play.
#include "told.h"

#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>

// Sets in sets: `depth` of them, the innermost with events `in`, the others with `out`, slept on by `how`.
static int nest(int fd, uint32_t in, uint32_t out, int depth, int *inner)
{
	int set = *inner = set_of(fd, in);
	while (--depth > 0)
		set = set_of(set, out);
	return set;
}

static void nested_room(char how, uint32_t in, uint32_t out, int depth, bool late)
{
	struct peer p;
	int fd = pair(&p), inner, set = nest(fd, in, out, depth, &inner);
	size_t n = 0;
	if (late)
		n = fill(fd);
	clear(set);
	clear(inner);
	struct sleeper *s = NULL;
	if (late || in & EPOLLET)
		s = begin(how, set, EPOLLIN, 0);
	if (!late)
		n = fill(fd);
	if (!s)
		s = begin(how, set, EPOLLIN, 0);
	nap(A_WHILE);
	s = still(s);
	if (s->back) { // level-triggered, of the inner set
		clear(inner);
		s = still(s);
	}
	say(" before:%s", s->back ? names(s->events) : "-");
	peer_do(&p, 'r', n);
	say_told("after", s);
	say(" inner:%s", names(now(inner)));
	peer_end(&p);
}

static void nested_in(char how, uint32_t in, uint32_t out)
{
	struct peer p;
	int fd = pair(&p), inner, set = nest(fd, in, out, 2, &inner);
	clear(set);
	clear(inner);
	for (int i = 0; i < 4; i++) {
		struct sleeper *s = begin(how, set, EPOLLIN, 0);
		peer_do(&p, 'w', i % 2 ? 3000 : 10);
		say_told("bytes", s);
		say(" inner:%s", names(now(inner)));
		if (i < 2)
			drain(fd);
	}
	peer_end(&p);
}

// Bytes come while the sleeper is about to sleep.
static void nested_soon(char how, uint32_t in, uint32_t out)
{
	struct peer p;
	int fd = pair(&p), inner, set = nest(fd, in, out, 2, &inner);
	soon = true;
	struct sleeper *s = NULL;
	for (int i = 0; i < 50 && (!s || s->back); i++) {
		drain(fd);
		clear(set);
		clear(inner);
		s = begin(how, set, EPOLLIN, 0);
		peer_do(&p, 'w', 10);
		told(s);
	}
	say_told("bytes", s);
	peer_end(&p);
}

// An inner member is asked for anew while somebody sleeps on the outer set.
static void nested_mod(char how, uint32_t in, uint32_t out, bool fresh)
{
	struct peer p;
	int fd = pair(&p), other = pair(&(struct peer){0}), inner, set = nest(fresh ? other : fd, in, out, 2, &inner);
	peer_do(&p, 'w', 10);
	nap(20);
	clear(set);
	clear(inner);
	struct sleeper *s = begin(how, set, EPOLLIN, 0);
	say(" before:%s", s->back ? names(s->events) : "-");
	ctl(inner, fresh ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, in);
	say_told("asked anew", s);
	say(" inner:%s", names(now(inner)));
	peer_end(&p);
}

// Writable is asked for late, of a full connection, by another thread.
static void late_out(char how, uint32_t in, int depth, bool polls)
{
	struct peer p;
	int fd = pair(&p), inner, set = nest(fd, in & ~(uint32_t)EPOLLOUT, EPOLLIN, depth, &inner);
	clear(set);
	size_t n = fill(fd);
	struct sleeper *s = begin(how, set, EPOLLIN, 0);
	ctl(inner, EPOLL_CTL_MOD, fd, in);
	for (int i = 0; i < 200 && polls; i++) // perhaps this takes the news that was for the sleeper
		now(set);
	nap(A_WHILE);
	peer_do(&p, 'r', n);
	say_told("out", s);
	peer_end(&p);
}

// Two threads sleep in one level-triggered set; who is told first does not read.
static void level_two(char how)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, EPOLLIN);
	struct sleeper *a = begin(how, set, EPOLLIN, 0), *b = begin(how, set, EPOLLIN, 0);
	peer_do(&p, 'w', 200);
	say_told("one", a);
	say_told("other", b);
	peer_end(&p);
}

// Of many that are ready, one by one, all are told, be there one that always is or not.
static void many_ready(uint32_t in)
{
	enum { N = 6 };
	struct peer p[N];
	int fd[N], pipes[2], set = epoll_create1(0), seen[64] = {0};
	check(pipe(pipes) == 0, "pipe");
	ctl(set, EPOLL_CTL_ADD, pipes[1], EPOLLOUT); // always
	for (int i = 0; i < N; i++) {
		fd[i] = pair(&p[i]);
		ctl(set, EPOLL_CTL_ADD, fd[i], in);
	}
	for (int i = 0; i < N; i++)
		peer_do(&p[i], 'w', 10);
	nap(20);
	for (int i = 0; i < 40; i++) {
		struct epoll_event e;
		if (epoll_wait(set, &e, 1, 1000) == 1)
			seen[e.data.fd % 64]++;
		nap(1);
	}
	int n = 0;
	for (int i = 0; i < N; i++)
		n += seen[fd[i] % 64] > 0;
	say(" %s", n == N && seen[pipes[1] % 64] ? "all told" : "NOT TOLD of all");
	for (int i = 0; i < N; i++)
		peer_end(&p[i]);
}

static double used(void)
{
	struct rusage u;
	getrusage(RUSAGE_SELF, &u);
	return (double)u.ru_utime.tv_sec + (double)u.ru_stime.tv_sec + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6;
}

static atomic_bool over;

// Sleepers of several kinds on one set; when all are told and sleep again, nobody runs.
static void *waits_on(void *arg)
{
	struct epoll_event e;
	int set = (int)((intptr_t)arg & 0xffff), inner = (int)((intptr_t)arg >> 16 & 0xffff), how = (int)((intptr_t)arg >> 32);
	while (!over) {
		struct pollfd p = {set, POLLIN, 0};
		if (how == 'p' ? poll(&p, 1, -1) > 0 : epoll_wait(set, &e, 1, -1) > 0) {
			if (epoll_wait(inner, &e, 1, 0) == 1)
				drain(e.data.fd);
			else if (how == 'e' && set == inner)
				drain(e.data.fd);
		}
	}
	return NULL;
}

static void quiet(const char *how, uint32_t in, uint32_t out)
{
	struct peer p;
	int fd = pair(&p), inner = set_of(fd, in);
	over = false;
	for (; *how; how++) {
		pthread_t t;
		intptr_t set = *how == 'n' ? set_of(inner, out) : inner;
		pthread_create(&t, NULL, waits_on, (void *)(set | (intptr_t)inner << 16 | (intptr_t)*how << 32));
	}
	nap(A_WHILE);
	for (int i = 0; i < 5; i++) {
		peer_do(&p, 'w', 10);
		nap(10);
	}
	nap(100);
	double before = used();
	nap(600);
	double after = used() - before;
	say(" %s", after < 0.15 ? "quiet" : "BUSY");
	over = true;
	peer_end(&p);
}

// A third thread ends the connection, or its descriptor, while others sleep.
static void end_while(char how, int what, uint32_t want)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, want | (how == 'e' ? EPOLLET : 0));
	if (how == 'w' || how == 'r')
		fcntl(fd, F_SETFL, 0);
	if (how == 'w' || want & EPOLLOUT) {
		fcntl(fd, F_SETFL, O_NONBLOCK);
		fill(fd);
		if (how == 'w')
			fcntl(fd, F_SETFL, 0);
	}
	clear(set);
	struct sleeper *s = begin(how, how == 'e' ? set : fd, want, how == 'w' ? 8 << 20 : 100);
	shutdown(fd, what);
	say_told("end", s);
	peer_end(&p);
}

static void sleepers_all(bool shut)
{
	struct peer p;
	int fd = pair(&p), et = set_of(fd, ET_BOTH), copy = dup(fd), lt = set_of(copy, EPOLLOUT), ex = set_of(fd, EPOLLOUT | EPOLLEXCLUSIVE), ex2 = set_of(fd, EPOLLOUT | EPOLLEXCLUSIVE);
	clear(et);
	struct sleeper *a = begin('e', et, 0, 0);
	size_t n = fill(fd);
	struct sleeper *b = begin('e', lt, 0, 0), *c = begin('p', fd, POLLOUT, 0), *d = begin('s', copy, EPOLLOUT, 0), *e = begin('e', ex, 0, 0), *f = begin('e', ex2, 0, 0);
	if (shut)
		shutdown(fd, SHUT_WR);
	else
		peer_do(&p, 'r', n);
	say_told("et", a);
	say_told("lt", b);
	say_told("poll", c);
	say_told("select", d);
	told(e);
	say(" exclusive:%s", e->back || told(f) ? "told" : "NOT TOLD");
	peer_end(&p);
}

// A forked child fills while the parent sleeps.
static void child_fills(uint32_t want, bool set_before)
{
	struct peer p;
	int fd = pair(&p), set = -1, back[2];
	size_t n;
	check(pipe(back) == 0, "pipe");
	if (set_before) {
		set = set_of(fd, want);
		clear(set);
	}
	fflush(stdout);
	pid_t child = fork();
	if (child == 0) {
		nap(2 * A_WHILE);
		n = fill(fd);
		if (write(back[1], &n, sizeof n) < 0)
			_exit(1);
		pause();
	}
	if (!set_before) {
		set = set_of(fd, want);
		clear(set);
	}
	struct sleeper *s = begin('e', set, 0, 0);
	check(read(back[0], &n, sizeof n) == sizeof n, "child");
	s = still(s);
	say(" before:%s", s->back ? names(s->events) : "-");
	peer_do(&p, 'r', n);
	say_told("after", s);
	kill(child, SIGKILL);
	waitpid(child, NULL, 0);
	peer_end(&p);
}

static void remod(uint32_t want)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, want);
	peer_do(&p, 'w', 10);
	nap(20);
	clear(set);
	struct sleeper *s = begin('e', set, 0, 0);
	say(" before:%s", s->back ? names(s->events) : "-");
	ctl(set, EPOLL_CTL_MOD, fd, want);
	say_told("same mask", s);
	peer_end(&p);
}

static void beside(char what)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, ET_BOTH), other = -1;
	sigset_t usr;
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR1);
	pthread_sigmask(SIG_BLOCK, &usr, NULL);
	other = what == 'e' ? eventfd(0, 0) : what == 't' ? timerfd_create(CLOCK_MONOTONIC, 0) : signalfd(-1, &usr, 0);
	ctl(set, EPOLL_CTL_ADD, other, EPOLLIN);
	clear(set);
	struct sleeper *s = begin('e', set, 0, 0);
	struct itimerspec soon = {.it_value.tv_nsec = 1000000};
	if (what == 'e')
		eventfd_write(other, 1);
	else if (what == 't')
		timerfd_settime(other, 0, &soon, NULL);
	else
		kill(getpid(), SIGUSR1);
	if (what == 's')
		pthread_kill(s->t, SIGUSR1);
	say_told("other", s);
	peer_end(&p);
}

// Filled to the last byte without being refused, then asked by poll, or by another set.
static void exactly(char how)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, ET_BOTH);
	clear(set);
	struct pollfd f = {fd, POLLOUT, 0};
	size_t n = 0;
	for (int quiet = 0; quiet < 3; nap(quiet ? 10 : 0), quiet++)
		while (poll(&f, 1, 0) == 1 && f.revents & POLLOUT) {
			n += put(fd, 100);
			quiet = 0;
		}
	clear(set);
	if (how == 'l')
		set_of(fd, EPOLLOUT);
	struct sleeper *s = begin('e', set, 0, 0);
	peer_do(&p, 'r', n);
	say_told("room", s);
	peer_end(&p);
}

static void lowat(char how, uint32_t want)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, want), low = 1000;
	setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
	clear(set);
	if (how == 'r')
		fcntl(fd, F_SETFL, 0);
	struct sleeper *s = begin(how, how == 'e' ? set : fd, POLLIN, 4000);
	peer_do(&p, 'w', 500);
	nap(A_WHILE);
	say(" few:%s", s->back ? "told" : "-");
	peer_do(&p, 'w', 600);
	say_told("enough", s);
	peer_end(&p);
}

static void sndtimeo(void)
{
	struct peer p;
	int fd = pair(&p);
	struct timeval t = {0, 200000};
	size_t n = fill(fd);
	fcntl(fd, F_SETFL, 0);
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &t, sizeof t);
	struct sleeper *s = begin('w', fd, 0, 10);
	say_told("timeout", s);
	s = begin('w', fd, 0, 10);
	peer_do(&p, 'r', n);
	say_told("room", s);
	peer_end(&p);
}

static void oneshot(uint32_t edge)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT | edge);
	for (int i = 0; i < 6; i++) {
		clear(set);
		size_t n = fill(fd);
		struct sleeper *s = begin('e', set, 0, 0);
		if (i % 2)
			now(set);
		ctl(set, EPOLL_CTL_MOD, fd, EPOLLIN | EPOLLOUT | EPOLLONESHOT | edge); // from another thread than sleeps
		nap(20);
		say(" %s", s->back ? "early" : "-");
		peer_do(&p, 'r', n);
		say_told("room", s);
	}
	peer_end(&p);
}

static void handler(int s) { (void)s; }

static void *pwaits(void *arg)
{
	struct sleeper *s = arg;
	struct epoll_event e;
	sigset_t none;
	sigemptyset(&none);
	s->got = epoll_pwait(s->fd, &e, 1, -1, &none);
	s->error = s->got < 0 ? errno : 0;
	s->events = s->got > 0 ? e.events : 0;
	s->back = true;
	return NULL;
}

static void pwait(void)
{
	struct peer p;
	int fd = pair(&p), set = set_of(fd, ET_BOTH);
	struct sigaction a = {.sa_handler = handler, .sa_flags = SA_RESTART};
	sigset_t usr;
	sigemptyset(&usr);
	sigaddset(&usr, SIGUSR2);
	pthread_sigmask(SIG_BLOCK, &usr, NULL);
	sigaction(SIGUSR2, &a, NULL);
	for (int i = 0; i < 2; i++) {
		clear(set);
		struct sleeper s = {.fd = set};
		pthread_create(&s.t, NULL, pwaits, &s);
		nap(i ? 0 : A_WHILE);
		pthread_kill(s.t, SIGUSR2);
		say_told("signal", &s);
		pthread_join(s.t, NULL);
	}
	peer_end(&p);
}

static int scene, mine, jobs;
static const char *only = "";

// ours: this is a process to play that scene in.
static bool ours(char how, const char *name)
{
	int status;
	if (scene++ % jobs != mine || !strstr(name, only))
		return false;
	fflush(stdout);
	pid_t pid = fork();
	if (pid == 0) {
		alarm(40);
		say("%c %s:", how, name);
		return true;
	}
	if (waitpid(pid, &status, 0) != pid || status != 0)
		say("%c %s: died: %x\n", how, name, (unsigned)status);
	return false;
}

static void over_with(void)
{
	say("\n");
	fflush(stdout);
	_exit(0);
}

#define DO(call) (ours(how, #call) ? (call, over_with()) : (void)0)

int main(int argc, char **argv)
{
	char how;
	signal(SIGPIPE, SIG_IGN);
	jobs = argc > 1 ? atoi(argv[1]) : 1;
	only = argc > 2 ? argv[2] : "";
	for (int i = 1; i < jobs && mine == 0; i++)
		if (fork() == 0)
			mine = i;
	for (const char *h = "eps"; (how = *h); h++) {
		for (int depth = 2; depth < 4; depth++) {
			DO(nested_room(how, ET_BOTH, EPOLLIN, depth, false));
			DO(nested_room(how, ET_BOTH, EPOLLIN, depth, true));
			DO(nested_room(how, EPOLLIN | EPOLLOUT, EPOLLIN, depth, true));
			DO(nested_room(how, ET_BOTH, EPOLLIN | EPOLLET, depth, true));
			DO(nested_room(how, EPOLLIN | EPOLLOUT, EPOLLIN | EPOLLET, depth, true));
		}
		DO(nested_in(how, EPOLLIN, EPOLLIN));
		DO(nested_in(how, EPOLLIN | EPOLLET, EPOLLIN));
		DO(nested_in(how, EPOLLIN | EPOLLET, EPOLLIN | EPOLLET));
		DO(nested_soon(how, EPOLLIN | EPOLLET, EPOLLIN));
		DO(nested_soon(how, EPOLLIN | EPOLLET, EPOLLIN | EPOLLET));
		DO(nested_mod(how, EPOLLIN | EPOLLET, EPOLLIN, false));
		DO(nested_mod(how, EPOLLIN | EPOLLET, EPOLLIN | EPOLLET, false));
		DO(nested_mod(how, EPOLLIN | EPOLLET, EPOLLIN | EPOLLET, true));
		for (int depth = 1; depth < 3; depth++) {
			DO(late_out(how, ET_BOTH, depth, false));
			DO(late_out(how, ET_BOTH, depth, true));
			DO(late_out(how, EPOLLIN | EPOLLOUT, depth, true));
		}
		DO(level_two(how));
	}
	how = '-';
	DO(many_ready(EPOLLIN));
	DO(many_ready(EPOLLIN | EPOLLET));
	DO(quiet("nn", EPOLLIN | EPOLLET, EPOLLIN));
	DO(quiet("pe", EPOLLIN | EPOLLET, EPOLLIN));
	DO(quiet("pne", EPOLLIN, EPOLLIN | EPOLLET));
	for (const char *h = "wpse"; (how = *h); h++) {
		DO(end_while(how, SHUT_WR, EPOLLOUT));
		DO(end_while(how, SHUT_RDWR, EPOLLOUT));
	}
	for (const char *h = "rpse"; (how = *h); h++) {
		DO(end_while(how, SHUT_RD, EPOLLIN));
		DO(end_while(how, SHUT_RDWR, EPOLLIN));
	}
	how = '-';
	DO(sleepers_all(false));
	DO(sleepers_all(true));
	DO(child_fills(ET_BOTH, true));
	DO(child_fills(ET_BOTH, false));
	DO(child_fills(EPOLLIN | EPOLLOUT, true));
	DO(remod(EPOLLIN | EPOLLET));
	DO(remod(EPOLLOUT | EPOLLET));
	DO(remod(EPOLLIN | EPOLLONESHOT));
	DO(beside('e'));
	DO(beside('t'));
	DO(beside('s'));
	DO(exactly('p'));
	DO(exactly('l'));
	DO(lowat('e', EPOLLIN));
	DO(lowat('e', EPOLLIN | EPOLLET));
	DO(lowat('p', EPOLLIN));
	DO(lowat('r', EPOLLIN));
	DO(sndtimeo());
	DO(oneshot(0));
	DO(oneshot(EPOLLET));
	DO(pwait());
	while (mine == 0 && wait(NULL) > 0)
		;
	return 0;
}
