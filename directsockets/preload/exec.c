// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// The new program may have the library or not, but it knows nothing of our tables:
// to it a socket is a plain socket. What becomes of a connection when a process calls
// exec, posix_spawn, pidfd_spawn, system or popen:
//
//	close-on-exec   closed, as by a death; a reference that the family shares is
//	                given back
//	else            goes back to TCP first, for all who hold it, until the program
//	                has ended (heirs.c): what that would not find there it would
//	                wait for without end
//
// posix_spawn and the like run the new program without calling us again; what its
// file actions copy goes back to TCP when the action is added. A program may keep
// actions for many spawns, and the number be another connection's by then: while
// there are actions at all, each spawn does so with what has such a number.
//
// All that must be undone when exec fails. The listener is made again at need.
#include "hook.h"

#include <alloca.h>
#include <dlfcn.h>
#include <stdarg.h>
#include <string.h>

#include "buffer.h"
#include "cancel.h"
#include "clock.h"
#include "config.h"
#include "epset.h"
#include "files.h"
#include "heirs.h"
#include "rendezvous.h"

// What this call has given back, by descriptor: how often process_disinherit was
// called, and 2 if for the first of several.
static __thread uint8_t *given __attribute__((tls_model("initial-exec")));

// When the way back of what the next program of this thread inherits has begun.
static __thread uint64_t begun __attribute__((tls_model("initial-exec")));

// inherited: another program is about to hold it, and it is not on TCP for good.
static bool inherited(const struct conn *c, int fd)
{
	bool never = c->state == CONN_OFF || c->state == CONN_LISTENER;
	int flags = never ? -1 : real.fcntl(fd, F_GETFD);
	return flags >= 0 && !(flags & FD_CLOEXEC);
}

static void halt(struct conn *c, int fd, bool first)
{
	(void)first; // of its descriptors only the second may be inherited
	if (inherited(c, fd))
		conn_halt(c, fd, true);
}

// expose takes a connection that the new program inherits back to TCP. What cannot go back,
// as the peer has ended or left its lane before with bytes unread, is reset if nobody can
// read it any more; else who has it goes on, since most programs inherit what they never use.
static void expose(struct conn *c, int fd, bool others)
{
	if (!inherited(c, fd))
		return;
	if (others)
		heirs_add(c, fd);
	else
		c->exposed = true;
	if (!conn_decided(c) || (c->overdue && others)) // it could not: it is not waited for each time
		return;
	if (!(c->exposed ? conn_return(c, fd, REASON_SHARED) : conn_rest(c, fd, begun)) && !others)
		conn_break(c, fd, REASON_SHARED);
}

static void expose_beside(struct conn *c, int fd, bool first)
{
	(void)first;
	expose(c, fd, true);
}

// Which numbers file actions copy: those whose epoch is the present one, which ends
// with the last actions. Of which actions they are does not matter.
static _Atomic uint32_t copied[FILES_MAX], epoch = 1, actions;

static void expose_copied(struct conn *c, int fd, bool first)
{
	(void)first;
	if (copied[fd] != epoch)
		return;
	conn_stay(c, fd, REASON_SHARED);
}

// share prepares for a program that runs beside this one.
static void share(const posix_spawn_file_actions_t *a)
{
	int cancel; // none of these calls is a cancellation point before the program is started
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel);
	begun = clock_ns();
	process_conns(halt);
	process_conns(expose_beside);
	if (a)
		process_conns(expose_copied);
	pthread_setcancelstate(cancel, NULL);
}

static void survive(struct conn *c, int fd, bool first)
{
	expose(c, fd, conn_shared(c));
	if (c->engaged && !conn_engaged(c))
		epset_disengaged(c); // another process of the family may have taken it back: our sets have it still
	if (conn_common(c)) {
		process_disinherit(c, fd, first);
		given[fd] = first ? 2 : 1;
	}
}

static void survived(struct conn *c, int fd, bool first)
{
	(void)first;
	if (given[fd])
		process_inherit(c, fd, given[fd] == 2);
}

// PROGRAM runs `call`, which does not return if it succeeds.
#define PROGRAM(call) \
	do { \
		int top = config.off || process_borrowed() ? 0 : files_top(); \
		if (top == 0) \
			return call; \
		given = alloca((size_t)top); \
		memset(given, 0, (size_t)top); \
		int cancel; \
		pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); \
		begun = clock_ns(); \
		process_conns(halt); \
		process_conns(survive); \
		buffer_leave(); \
		rendezvous_retire(); \
		call; \
		int saved = errno; \
		process_conns(survived); \
		heirs_done(); \
		buffer_stay(); \
		pthread_setcancelstate(cancel, NULL); \
		errno = saved; \
		return -1; \
	} while (0)

EXPORT int execve(const char *path, char *const argv[], char *const env[])
{
	HOOK();
	PROGRAM(real.execve(path, argv, env));
}

EXPORT int execvpe(const char *file, char *const argv[], char *const env[])
{
	HOOK();
	PROGRAM(real.execvpe(file, argv, env));
}

EXPORT int execveat(int dir, const char *path, char *const argv[], char *const env[], int flags)
{
	HOOK();
	PROGRAM(real.execveat(dir, path, argv, env, flags));
}

EXPORT int fexecve(int fd, char *const argv[], char *const env[])
{
	HOOK();
	PROGRAM(real.fexecve(fd, argv, env));
}

EXPORT int execv(const char *path, char *const argv[]) { return execve(path, argv, environ); }
EXPORT int execvp(const char *file, char *const argv[]) { return execvpe(file, argv, environ); }

// The list forms build the vector that the others take.
#define VECTOR(first) \
	va_list ap, again; \
	size_t n = 1; \
	va_start(ap, first); \
	va_copy(again, ap); \
	while (va_arg(ap, char *)) \
		n++; \
	char **argv = alloca((n + 1) * sizeof *argv); \
	argv[0] = (char *)(uintptr_t)first; \
	for (size_t i = 1; i <= n; i++) \
		argv[i] = va_arg(again, char *); \
	va_end(again)

EXPORT int execl(const char *path, const char *arg, ...)
{
	VECTOR(arg);
	va_end(ap);
	return execve(path, argv, environ);
}
EXPORT int execlp(const char *file, const char *arg, ...)
{
	VECTOR(arg);
	va_end(ap);
	return execvpe(file, argv, environ);
}
EXPORT int execle(const char *path, const char *arg, ...)
{
	VECTOR(arg);
	char **env = va_arg(ap, char **);
	va_end(ap);
	return execve(path, argv, env);
}

EXPORT int posix_spawn_file_actions_adddup2(posix_spawn_file_actions_t *a, int fd, int to)
{
	HOOK();
	hook_leave(fd, REASON_SHARED);
	if ((unsigned)fd < FILES_MAX)
		copied[fd] = epoch;
	return real.posix_spawn_file_actions_adddup2(a, fd, to);
}

EXPORT int posix_spawn_file_actions_init(posix_spawn_file_actions_t *a)
{
	HOOK();
	actions++;
	return real.posix_spawn_file_actions_init(a);
}

EXPORT int posix_spawn_file_actions_destroy(posix_spawn_file_actions_t *a)
{
	HOOK();
	if (--actions == 0)
		epoch++;
	return real.posix_spawn_file_actions_destroy(a);
}

EXPORT int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *attr,
		       char *const argv[], char *const env[])
{
	HOOK();
	share(a);
	int r = real.posix_spawn(pid, path, a, attr, argv, env);
	heirs_done();
	return r;
}

EXPORT int posix_spawnp(pid_t *pid, const char *file, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *attr,
			char *const argv[], char *const env[])
{
	HOOK();
	share(a);
	int r = real.posix_spawnp(pid, file, a, attr, argv, env);
	heirs_done();
	return r;
}

// C libraries have these since 2.39. They are looked up when they are called: to look for
// what is not there leaves the program a message in dlerror. A program that finds ours
// on an older C library is told what older kernels tell. A static one has what the C
// library has with which this one is compiled.
#if !defined EXTDS_STATIC || __GLIBC_PREREQ(2, 39)
typedef int pidfd_spawner(int *pidfd, const char *file, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *attr,
			  char *const argv[], char *const env[]);
#ifdef EXTDS_STATIC
pidfd_spawner __real_pidfd_spawn, __real_pidfd_spawnp;
#define NEXT(name) __real_##name
#else
#define NEXT(name) (pidfd_spawner *)dlsym(RTLD_NEXT, #name)
#endif
#define PIDFD_SPAWN(name) \
	EXPORT int name(int *pidfd, const char *file, const posix_spawn_file_actions_t *a, const posix_spawnattr_t *attr, \
			char *const argv[], char *const env[]) \
	{ \
		HOOK(); \
		pidfd_spawner *next = NEXT(name); \
		if (!next) \
			return ENOSYS; \
		share(a); \
		int r = next(pidfd, file, a, attr, argv, env); \
		heirs_done(); \
		return r; \
	}
PIDFD_SPAWN(pidfd_spawn)
PIDFD_SPAWN(pidfd_spawnp)
#endif

static void started(void *none)
{
	(void)none;
	heirs_done();
}

EXPORT int system(const char *command)
{
	HOOK();
	share(NULL);
	int r;
	CANCELLED(started, r = real.system(command));
	heirs_done();
	return r;
}

EXPORT FILE *popen(const char *command, const char *type)
{
	HOOK();
	share(NULL);
	FILE *f = real.popen(command, type);
	heirs_done();
	return f;
}
