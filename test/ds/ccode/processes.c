// SPDX-License-Identifier: Apache-2.0
//
// processes.c makes the calls that concern processes, and those that reach a
// socket by other ways than the calls above: stdio, another program.
#include "ring.h"

#include <aio.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

int capset(void *header, const void *data); // the C library's, which has no header for it

static void c_pair(struct call *c) // H pair OTHER
{
	int p[2] = {-1, -1};
	int r = socketpair(AF_UNIX, SOCK_STREAM, 0, p);
	if (r == 0)
		bind_handle(arg(c, 2), p[1]);
	new(c, r < 0 ? -1 : p[0]);
}

static void c_pipe(struct call *c) // H pipe OTHER: what is written to OTHER
{
	int p[2] = {-1, -1};
	int r = pipe(p);
	if (r == 0)
		bind_handle(arg(c, 2), p[1]);
	new(c, r < 0 ? -1 : p[0]);
}

static void c_pass(struct call *c) // pass H FD: SCM_RIGHTS
{
	char byte = 'f';
	union { char space[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } u = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.space, .msg_controllen = sizeof u.space};
	int fd = fd_of(c, 2);
	*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
	result(c, sendmsg(fd_of(c, 1), &m, 0));
}

static void c_take(struct call *c) // H take PAIR: what pass sent
{
	char byte;
	union { char space[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } u = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.space, .msg_controllen = sizeof u.space};
	int fd = -1;
	if (recvmsg(fd_of(c, 2), &m, 0) == 1 && CMSG_FIRSTHDR(&m))
		memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	new(c, fd);
}

static void c_reap(struct call *c) // reap: the forked player
{
	int status;
	pid_t pid = waitpid(-1, &status, 0);
	if (pid < 0)
		result(c, pid);
	else if (WIFSIGNALED(status))
		say(c, "signal %d", WTERMSIG(status));
	else
		say(c, "exit %d", WEXITSTATUS(status));
}

static void c_spawn(struct call *c) // spawn in|out H N: head -c N on the socket, as a CGI program
{
	bool input = arg(c, 1)[0] == 'i';
	int fd = fd_of(c, 2), p[2], status;
	char n[16], *argv[] = {"head", "-c", n, NULL};
	snprintf(n, sizeof n, "%ld", number(c, 3));
	if (pipe(p) < 0)
		abort();
	posix_spawn_file_actions_t a;
	posix_spawn_file_actions_init(&a);
	posix_spawn_file_actions_adddup2(&a, input ? fd : p[0], 0);
	posix_spawn_file_actions_adddup2(&a, input ? p[1] : fd, 1);
	posix_spawn_file_actions_addclose(&a, p[0]);
	posix_spawn_file_actions_addclose(&a, p[1]);
	pid_t pid;
	size_t size = (size_t)number(c, 3);
	unsigned char *bytes = filled(c->id, 0, size);
	if (!input && write(p[1], bytes, size) != (ssize_t)size)
		abort();
	int r = posix_spawnp(&pid, "head", &a, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&a);
	close(p[1]);
	if (r) {
		say(c, "%s", strerrorname_np(r));
	} else {
		if (input) {
			size_t at = 0;
			ssize_t got;
			while (at < size && (got = read(p[0], bytes + at, size - at)) > 0)
				at += (size_t)got;
			say(c, "%zu", at);
			say_bytes(c, bytes, (long)at);
		}
		waitpid(pid, &status, 0);
		say(c, " status %d", status);
	}
	close(p[0]);
	free(bytes);
}

static posix_spawn_file_actions_t prepared;
static int out_of_prepared[2];

// prepare H ACTION,...: file actions, for one "prepared", whose output comes by a
// pipe. 0 makes the socket the new
// program's 0, self leaves it its number, closed and null take that, from3 takes
// all but 0, 1 and 2.
static void c_prepare(struct call *c)
{
	int fd = fd_of(c, 1), r = posix_spawn_file_actions_init(&prepared);
	char actions[64], *save = NULL;
	snprintf(actions, sizeof actions, "%s", arg(c, 2));
	if (pipe2(out_of_prepared, O_CLOEXEC) < 0)
		abort();
	posix_spawn_file_actions_adddup2(&prepared, out_of_prepared[1], 1);
	for (char *p = strtok_r(actions, ",", &save); p && r == 0; p = strtok_r(NULL, ",", &save)) {
		if (strcmp(p, "0") == 0)
			r = posix_spawn_file_actions_adddup2(&prepared, fd, 0);
		else if (strcmp(p, "self") == 0)
			r = posix_spawn_file_actions_adddup2(&prepared, fd, fd);
		else if (strcmp(p, "closed") == 0)
			r = posix_spawn_file_actions_addclose(&prepared, fd);
		else if (strcmp(p, "null") == 0)
			r = posix_spawn_file_actions_addopen(&prepared, fd, "/dev/null", O_RDWR, 0);
		else if (strcmp(p, "from3") == 0)
			r = posix_spawn_file_actions_addclosefrom_np(&prepared, 3);
		else
			r = EINVAL;
	}
	say(c, "%s", r ? strerrorname_np(r) : "ok");
}

static void c_prepared(struct call *c) // prepared H N FD: head -c N from FD, or from H's number if it is "own"
{
	char command[64], *argv[] = {"sh", "-c", command, NULL};
	int from = strcmp(arg(c, 3), "own") == 0 ? fd_of(c, 1) : (int)number(c, 3), status;
	size_t n = (size_t)number(c, 2), at = 0;
	unsigned char *bytes = filled(c->id, 0, n);
	ssize_t got;
	pid_t pid;
	snprintf(command, sizeof command, "exec 2>/dev/null; head -c %zu <&%d", n, from);
	int r = posix_spawnp(&pid, "sh", &prepared, NULL, argv, environ);
	posix_spawn_file_actions_destroy(&prepared);
	close(out_of_prepared[1]);
	if (r) {
		say(c, "%s", strerrorname_np(r));
	} else {
		while (at < n && (got = read(out_of_prepared[0], bytes + at, n - at)) > 0)
			at += (size_t)got;
		waitpid(pid, &status, 0);
		say(c, "%zu", at);
		say_bytes(c, bytes, (long)at);
		say(c, " status %d", WEXITSTATUS(status));
	}
	close(out_of_prepared[0]);
	free(bytes);
}

static void close_all(const char *how, int from)
{
	if (strcmp(how, "closefrom") == 0)
		closefrom(from);
	else if (strcmp(how, "closerange") == 0)
		close_range((unsigned)from, ~0u, 0);
	else if (strcmp(how, "unshare") == 0)
		close_range((unsigned)from, ~0u, CLOSE_RANGE_UNSHARE);
	else if (strcmp(how, "cloexec") == 0)
		close_range((unsigned)from, ~0u, CLOSE_RANGE_CLOEXEC);
	else if (strcmp(how, "raw") == 0)
		syscall(SYS_close_range, from, ~0u, 0);
	else
		for (int fd = from; fd < 5000; fd++)
			close(fd);
}

// cgi HOW H N: a forked child has the socket as its 0, closes all but 0, 1 and 2, and
// is head -c N.
static void c_cgi(struct call *c)
{
	int fd = fd_of(c, 2), p[2], status;
	size_t n = (size_t)number(c, 3), at = 0;
	char text[16];
	snprintf(text, sizeof text, "%zu", n);
	if (pipe(p) < 0)
		abort();
	pid_t pid = fork();
	if (pid == 0) {
		dup2(fd, 0);
		dup2(p[1], 1);
		close_all(arg(c, 1), 3);
		execlp("head", "head", "-c", text, (char *)NULL);
		_exit(127);
	}
	close(p[1]);
	unsigned char *bytes = filled(c->id, 0, n);
	ssize_t got;
	while (at < n && (got = read(p[0], bytes + at, n - at)) > 0)
		at += (size_t)got;
	waitpid(pid, &status, 0);
	close(p[0]);
	say(c, "%zu", at);
	say_bytes(c, bytes, (long)at);
	say(c, " status %d", status);
	free(bytes);
}

// closeall HOW: what is above the player's own descriptors. None of it is the
// program's, and so nothing may change.
static void c_closeall(struct call *c)
{
	close_all(arg(c, 1), 210);
	say(c, "ok");
}

static void c_closelow(struct call *c) // closelow [cloexec]: by one call, all sockets
{
	result(c, close_range(3, 199, c->argc > 1 ? CLOSE_RANGE_CLOEXEC : 0));
}

static void c_popen(struct call *c) // popen H N: head -c N by a shell that is told the number
{
	size_t n = (size_t)number(c, 2);
	char command[64];
	snprintf(command, sizeof command, "head -c %zu <&%d", n, fd_of(c, 1));
	FILE *f = popen(command, "r");
	unsigned char *p = filled(c->id, 0, n);
	if (!f)
		abort();
	size_t got = fread(p, 1, n, f);
	int status = pclose(f);
	say(c, "%zu", got);
	say_bytes(c, p, (long)got);
	say(c, " status %d", status);
	free(p);
}

static void c_stdio(struct call *c) // fread|fwrite H N: through a FILE on a duplicate; dprintf H N
{
	size_t n = (size_t)number(c, 2);
	if (c->argv[0][0] == 'd') {
		result(c, dprintf(fd_of(c, 1), "%0*d", (int)n, (int)c->id));
		return;
	}
	bool in = c->argv[0][1] == 'r';
	FILE *f = fdopen(dup(fd_of(c, 1)), in ? "r" : "w");
	unsigned char *p = filled(c->id, 0, n);
	if (!f) {
		result(c, -1);
		free(p);
		return;
	}
	setvbuf(f, NULL, in ? _IONBF : _IOFBF, 4096); // reads no more than asked for
	size_t r = in ? fread(p, 1, n, f) : fwrite(p, 1, n, f);
	say(c, "%zu", r);
	if (in)
		say_bytes(c, p, (long)r);
	fclose(f);
	free(p);
}

static void c_aio(struct call *c) // aioread|aiowrite|aiolist H N: by POSIX AIO; a list has one write
{
	bool in = c->argv[0][3] == 'r';
	size_t n = (size_t)number(c, 2);
	unsigned char *p = filled(c->id, 0, n);
	struct aiocb a = {.aio_fildes = fd_of(c, 1), .aio_buf = p, .aio_nbytes = n, .aio_lio_opcode = LIO_WRITE};
	struct aiocb *list[] = {NULL, &a};
	const struct aiocb *all[] = {&a};
	int r = c->argv[0][3] == 'l' ? lio_listio(LIO_WAIT, list, 2, NULL) : in ? aio_read(&a) : aio_write(&a);
	while (r == 0 && aio_error(&a) == EINPROGRESS)
		aio_suspend(all, 1, NULL);
	errno = r == 0 ? aio_error(&a) : errno;
	long got = r == 0 ? aio_return(&a) : -1;
	result(c, got);
	if (in)
		say_bytes(c, p, got);
	free(p);
}

static void c_raw(struct call *c) // rawread|rawwrite H N, rawclose H: by syscall(2)
{
	size_t n = (size_t)number(c, 2);
	int fd = fd_of(c, 1);
	if (c->argv[0][3] == 'c') {
		result(c, syscall(SYS_close, fd));
		return;
	}
	bool in = c->argv[0][3] == 'r';
	unsigned char *p = filled(c->id, 0, n);
	long r = syscall(in ? SYS_read : SYS_write, fd, p, n);
	result(c, r);
	if (in)
		say_bytes(c, p, r);
	free(p);
}

static void c_uring(struct call *c) // uring: sets one up, as far as the kernel lets us
{
	char params[120] = {0}; // struct io_uring_params
	syscall(SYS_io_uring_setup, 2, params);
	say(c, "asked");
}

static void c_identity(struct call *c) // setuid UID; lockall
{
	if (c->argv[0][0] == 's')
		result(c, setuid((uid_t)number(c, 1)));
	else
		result(c, mlockall(MCL_CURRENT));
}

static void c_vfork(struct call *c) // vfork: and become true(1)
{
	int status = 0;
	pid_t pid = vfork();
	if (pid == 0) {
		execlp("true", "true", (char *)NULL);
		_exit(127);
	}
	result(c, waitpid(pid, &status, 0) == pid ? WEXITSTATUS(status) : -1);
}

static void c_confine(struct call *c) // chroot PATH; nofile N; setgid GID
{
	struct rlimit r = {(rlim_t)number(c, 1), (rlim_t)number(c, 1)};
	switch (c->argv[0][0]) {
	case 'c':
		result(c, chroot(arg(c, 1)));
		break;
	case 'n':
		result(c, setrlimit(RLIMIT_NOFILE, &r));
		break;
	default:
		result(c, setgid((gid_t)number(c, 1)));
	}
}

static void c_daemon(struct call *c) // daemon [away]: in a forked child, whose parent it is not any more
{
	int stay = strcmp(arg(c, 1), "away") != 0;
	result(c, daemon(stay, stay));
}

static void c_capset(struct call *c) // capset: gives up all capabilities
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct none[2] = {0};
	result(c, capset(&header, none));
}

static volatile sig_atomic_t told;
static void tell(int signo, siginfo_t *info, void *context)
{
	(void)context;
	if (signo == SIGIO || info->si_band & POLLIN) // SIGIO itself says nothing of it
		told = 1;
}

// sigio H fcntl|ioctl|queued: a signal when there is something to read. queued: one
// that says what there is.
static void c_sigio(struct call *c)
{
	const char *how = arg(c, 2);
	int fd = fd_of(c, 1), on = 1, r;
	pid_t own = getpid();
	int signo = how[0] == 'q' ? SIGRTMIN : SIGIO;
	struct sigaction sa = {.sa_sigaction = tell, .sa_flags = SA_SIGINFO | SA_RESTART};
	sigaction(signo, &sa, NULL);
	told = 0;
	if (how[0] == 'i') {
		r = ioctl(fd, FIOSETOWN, &own);
		r = r < 0 ? r : ioctl(fd, FIOASYNC, &on);
	} else {
		r = fcntl(fd, F_SETOWN, own);
		r = r < 0 || how[0] != 'q' ? r : fcntl(fd, F_SETSIG, signo);
		r = r < 0 ? r : fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_ASYNC);
	}
	result(c, r);
}

// told MS|-: whether such a signal came since the last look; with - it may or not, as
// the kernel sends none while a thread sleeps in a read.
static void c_told(struct call *c)
{
	for (int64_t end = now_ms() + number(c, 1); !told && now_ms() < end;)
		usleep(1000);
	say(c, "%s", strcmp(arg(c, 1), "-") == 0 ? "ok" : told ? "told" : "not told");
	told = 0;
}

static void c_handler(struct call *c) // handler restart|norestart|ignorepipe|defaultpipe
{
	const char *what = arg(c, 1);
	if (strcmp(what, "ignorepipe") == 0)
		signal(SIGPIPE, SIG_IGN);
	else if (strcmp(what, "defaultpipe") == 0)
		signal(SIGPIPE, SIG_DFL);
	else
		watch_signal(SIGUSR1, what[0] == 'r' ? SA_RESTART : 0);
	say(c, "ok");
}

static sigjmp_buf out_of_call;
static void jump(int signo) { siglongjmp(out_of_call, signo); }

static void c_jump(struct call *c) // jump H MS: a read that a handler leaves by longjmp
{
	struct itimerval t = {.it_value.tv_usec = (suseconds_t)number(c, 2) * 1000};
	char b;
	signal(SIGALRM, jump);
	if (sigsetjmp(out_of_call, 1) == 0) {
		setitimer(ITIMER_REAL, &t, NULL);
		result(c, read(fd_of(c, 1), &b, 1));
	} else {
		say(c, "jumped");
	}
}

static void c_sleep(struct call *c) { usleep((useconds_t)number(c, 1) * 1000); } // sleep MS
static void c_exit(struct call *c) { exit((int)number(c, 1)); } // exit CODE

const struct entry process_calls[] = {
	{"pair", c_pair, true}, {"pipe", c_pipe, true}, {"take", c_take, true}, {"pass", c_pass, false},
	{"reap", c_reap, false}, {"spawn", c_spawn, false}, {"popen", c_popen, false}, {"fread", c_stdio, false},
	{"fwrite", c_stdio, false}, {"dprintf", c_stdio, false},
	{"aioread", c_aio, false}, {"aiowrite", c_aio, false}, {"aiolist", c_aio, false}, {"handler", c_handler, false},
	{"rawread", c_raw, false}, {"rawwrite", c_raw, false}, {"rawclose", c_raw, false}, {"uring", c_uring, false},
	{"setuid", c_identity, false}, {"lockall", c_identity, false}, {"daemon", c_daemon, false},
	{"sleep", c_sleep, false}, {"jump", c_jump, false},
	{"vfork", c_vfork, false}, {"chroot", c_confine, false}, {"nofile", c_confine, false}, {"setgid", c_confine, false}, {"exit", c_exit, false}, {"fork", play_fork, false},
	{"exec", play_exec, false}, {"prepare", c_prepare, false}, {"prepared", c_prepared, false}, {"cgi", c_cgi, false},
	{"closeall", c_closeall, false}, {"closelow", c_closelow, false}, {"capset", c_capset, false}, {"sigio", c_sigio, false},
	{"told", c_told, false}, {"ring", c_ring, false}, {"rsend", c_rsend, false}, {"rrecv", c_rrecv, false}, {"rpoll", c_rpoll, false},
	{NULL, NULL, false},
};
