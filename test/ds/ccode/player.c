// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A play has two ends, each a process running this program, and one conductor
// that sends a step to one end, waits for its outcome, and sends the next. So
// what happens is a total order, and two plays of one script may differ only
// by what the sockets do.
//
//	conductor → player   ID[&N] CALL ARGS...
//	player → conductor   LOG [| NOTE]
//
// With &N the call is made by a thread of its own: the answer says "started"
// at once, and "join N" gives the outcome. In between the conductor looks at
// the state of that thread to know that it sleeps.
//
// The call "fork" makes a second player, which is talked to on descriptors 3
// and 4; "exec" replaces the program and keeps the handles. The conductor's
// descriptors live above 200, so that the sockets get the numbers that they
// would have in an ordinary program.
#include "player.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <fcntl.h>

enum {
	own_in = 200, own_out, child_in, child_out,
	max_threads = 8,
	max_handles = 32,
};

static int in = own_in, out = own_out;

static pthread_mutex_t handles_lock = PTHREAD_MUTEX_INITIALIZER;
static struct { char name[16]; int fd; } handles[max_handles];

int handle(const char *name)
{
	int fd = -1;
	pthread_mutex_lock(&handles_lock);
	for (int i = 0; i < max_handles && handles[i].name[0]; i++)
		if (strcmp(handles[i].name, name) == 0)
			fd = handles[i].fd;
	pthread_mutex_unlock(&handles_lock);
	return fd;
}

void bind_handle(const char *name, int fd)
{
	pthread_mutex_lock(&handles_lock);
	for (int i = 0; i < max_handles; i++) {
		if (handles[i].name[0] && strcmp(handles[i].name, name) != 0)
			continue;
		snprintf(handles[i].name, sizeof handles[i].name, "%s", name);
		handles[i].fd = fd;
		break;
	}
	pthread_mutex_unlock(&handles_lock);
}

void handles_text(char *text, size_t size)
{
	size_t n = 0;
	text[0] = 0;
	for (int i = 0; i < max_handles && handles[i].name[0] && n < size; i++)
		n += (size_t)snprintf(text + n, size - n, "%s%s=%d", i ? "," : "", handles[i].name, handles[i].fd);
}

void handles_parse(const char *text)
{
	char copy[max_text], *save = NULL;
	snprintf(copy, sizeof copy, "%s", text);
	for (char *p = strtok_r(copy, ",", &save); p; p = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(p, '=');
		if (!eq)
			continue;
		*eq = 0;
		bind_handle(p, atoi(eq + 1));
	}
}

__thread unsigned signals_seen;

static void on_signal(int signo)
{
	(void)signo;
	signals_seen++;
}

void watch_signal(int signo, int flags)
{
	struct sigaction sa = {.sa_handler = on_signal, .sa_flags = flags};
	sigaction(signo, &sa, NULL);
}

// answer writes one line; the conductor's pipe is never full.
static void answer(const struct call *c)
{
	char text[2 * max_text];
	int n = snprintf(text, sizeof text, "%s%s%s\n", c->log, c->note[0] ? " | " : "", c->note);
	if (write(out, text, (size_t)n) != n)
		_exit(3);
}

static struct thread {
	pthread_t id;
	_Atomic int tid;
	bool used;
	struct call call;
} threads[max_threads];

static void *run_thread(void *arg)
{
	struct thread *t = arg;
	t->tid = (int)syscall(SYS_gettid);
	perform(&t->call);
	return NULL;
}

static void parse(struct call *c, int *thread)
{
	char *save = NULL, *p = strtok_r(c->line, " \n", &save);
	*thread = -1;
	c->argc = 0;
	c->log[0] = c->note[0] = 0;
	if (!p)
		return;
	c->id = (unsigned)strtoul(p, &p, 10);
	if (*p == '&')
		*thread = atoi(p + 1) % max_threads;
	while (c->argc < max_args && (p = strtok_r(NULL, " \n", &save)))
		c->argv[c->argc++] = p;
}

static void start(struct call *c, int n)
{
	struct thread *t = &threads[n];
	t->call = *c;
	for (int i = 0; i < c->argc; i++) // the words live in the line of the copy
		t->call.argv[i] = t->call.line + (c->argv[i] - c->line);
	t->tid = 0;
	t->used = true;
	if (pthread_create(&t->id, NULL, run_thread, t) != 0) {
		snprintf(c->log, sizeof c->log, "no thread");
		return;
	}
	while (t->tid == 0)
		sched_yield();
	snprintf(c->log, sizeof c->log, "started");
	snprintf(c->note, sizeof c->note, "tid=%d", t->tid);
}

static void join(struct call *c, int n)
{
	struct thread *t = &threads[n];
	if (!t->used) {
		snprintf(c->log, sizeof c->log, "no such thread");
		return;
	}
	void *how;
	pthread_join(t->id, &how);
	t->used = false;
	snprintf(c->log, sizeof c->log, "%s", how == PTHREAD_CANCELED ? "cancelled" : t->call.log);
	memcpy(c->note, t->call.note, sizeof c->note);
}

// born makes a call of the library's in each child, as programs' handlers do, before fork
// returns there.
static void born(void) { close(-1); }

void play_fork(struct call *c)
{
	int up[2];
	if (pipe(up) < 0) {
		snprintf(c->log, sizeof c->log, "%s", strerrorname_np(errno));
		return;
	}
	pid_t pid = fork();
	if (pid == 0) {
		close(up[0]);
		close(up[1]);
		close(own_in);
		close(own_out);
		in = child_in;
		out = child_out;
		// The parent answers for this call; the child waits for its first.
		c->argc = -1;
		return;
	}
	char none;
	close(up[1]);
	while (read(up[0], &none, 1) < 0 && errno == EINTR) // until the child is up, so that what is killed has lived
		;
	close(up[0]);
	close(child_in);
	close(child_out);
	snprintf(c->log, sizeof c->log, "%s", pid > 0 ? "forked" : strerrorname_np(errno));
	snprintf(c->note, sizeof c->note, "pid=%d", pid);
}

void play_exec(struct call *c)
{
	char text[max_text], numbers[32];
	handles_text(text, sizeof text);
	snprintf(numbers, sizeof numbers, "%d,%d", in, out);
	execl("/proc/self/exe", "player", numbers, text, (char *)NULL);
	snprintf(c->log, sizeof c->log, "%s", strerrorname_np(errno));
}

int main(int argc, char **argv)
{
	if (argc == 3) { // after exec
		sscanf(argv[1], "%d,%d", &in, &out);
		handles_parse(argv[2]);
		struct call c = {.log = "executed"};
		answer(&c);
	} else {
		for (int i = 0; i < 4; i++) {
			int from = (const int[]){0, 1, 3, 4}[i];
			if (dup2(from, own_in + i) < 0)
				return 2;
			close(from);
		}
		if (open("/dev/null", O_RDWR) != 0 || dup2(0, 1) < 0)
			return 2;
	}
	watch_signal(SIGPIPE, 0);
	pthread_atfork(NULL, NULL, born);

	static struct call c;
	for (;;) {
		size_t n = 0;
		do { // one byte at a time: lines are short, and what follows may be for a child
			if (n + 1 == sizeof c.line)
				return 2;
			ssize_t got = read(in, c.line + n, 1);
			if (got < 0 && errno == EINTR)
				continue;
			if (got <= 0)
				return 0; // the play is over
			n++;
		} while (n == 0 || c.line[n - 1] != '\n');
		c.line[n] = 0;

		int thread;
		parse(&c, &thread);
		if (thread >= 0)
			start(&c, thread);
		else if (c.argc == 2 && strcmp(c.argv[0], "join") == 0)
			join(&c, atoi(c.argv[1]) % max_threads);
		else if (c.argc == 3 && strcmp(c.argv[0], "signal") == 0) {
			struct thread *t = &threads[atoi(c.argv[1]) % max_threads];
			int r = t->used ? pthread_kill(t->id, SIGUSR1) : ESRCH;
			snprintf(c.log, sizeof c.log, "%s", r ? strerrorname_np(r) : "sent");
		} else if (c.argc == 2 && strcmp(c.argv[0], "cancel") == 0) {
			struct thread *t = &threads[atoi(c.argv[1]) % max_threads];
			int r = t->used ? pthread_cancel(t->id) : ESRCH;
			snprintf(c.log, sizeof c.log, "%s", r ? strerrorname_np(r) : "asked");
		} else
			perform(&c);
		if (c.argc >= 0)
			answer(&c);
	}
}
