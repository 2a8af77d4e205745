// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// fork: the child shares the parent's connections through family memory. The
// references of the child are counted in the parent before it forks, so that a
// close right after it is not taken for the last; no other thread opens or closes
// one meanwhile (files.c). Locks in family memory need nothing; a thread of the
// parent that holds one gives it back. Private locks are made new in the child, and
// private state about epoll sets, the listener and offers is the parent's, so the
// child drops it.
// vfork: the child has the memory of its parent, which sleeps meanwhile, and so the
// parent's tables. If nothing is in those, and no other thread can put something there, what
// it does before exec finds no connection; where state is kept, process_borrowed says that
// it is not the child's to change. Any other vfork runs as fork.
//
// A child made by a raw clone is found by a page that the kernel wipes in
// children; it counts its references when it first calls us, and has no seat.
//
// seccomp: a program that is about to have the kernel filter its system calls is left to itself, for
// good. All goes back to TCP, and from then on hooks make the program's own calls and nothing is
// tracked anew. Connections stay in the table, for calls may be asleep on them. The same becomes of a program
// one of whose threads gets a table of descriptors of its own: there is one here.
//
// exit: what is open is closed in order, so that peers see SHUTDOWN rather than
// a death. To the kernel it stays open: calls that other threads are in do not fail, they end with
// the process.
#include "real.h"

#include "process.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "buffer.h"
#include "channel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "epset.h"
#include "family.h"
#include "files.h"
#include "heirs.h"
#include "hook.h"
#include "nap.h"
#include "rendezvous.h"
#include "single.h"
#include "tuple.h"

const volatile uint32_t *process_alive;
struct clock_both clock_origin;
static uint32_t *alive;
static uint32_t id;
static _Atomic uint32_t marks;
// The seat of the child to be for which references are counted; NULL: for this process itself.
static __thread const uint64_t *heir __attribute__((tls_model("initial-exec")));

_Atomic bool process_leaving;

static __thread bool lent __attribute__((tls_model("initial-exec"))); // to a child, at least until then

uint32_t process_id(void) { return id; }

// own_id: another library's getpid may be made of syscall, which would get here again.
static uint32_t own_id(void) { return (uint32_t)real.syscall(SYS_getpid); }

bool process_borrowed(void) { return lent && (lent = own_id() != id); }

void process_conns(void (*f)(struct conn *c, int fd, bool first))
{
	uint32_t mark = atomic_fetch_add(&marks, 1) + 1;
	for (int fd = 0; fd < files_top(); fd++) {
		struct conn *c = conn_get(fd);
		if (!c)
			continue;
		f(c, fd, c->mark != mark);
		c->mark = mark;
		conn_put(c);
	}
}

void process_inherit(struct conn *c, int fd, bool first)
{
	c->sole = false;
	uint64_t own = family_own();
	if (first && heir && own && !(atomic_fetch_or(&c->holders, own) & own))
		atomic_fetch_sub(&c->many, 1); // we had no seat when we made it
	// In this order: who closes the last of the others' sees us.
	if (first)
		conn_hold(c, heir ? *heir : own);
	atomic_fetch_add(&c->refs, 1);
	if (first && c->state == CONN_COUNTING && single_thread())
		tuple_know(c, fd); // for who looks: in the child it has no number that is published
}

void process_disinherit(struct conn *c, int fd, bool first)
{
	(void)fd;
	atomic_fetch_sub(&c->refs, 1);
	if (first)
		conn_unhold(c, heir ? *heir : family_own());
}

static void child(void)
{
	bool cloned = !heir; // past us, so that nothing was counted for it before
	id = own_id();
	process_leaving = false;
	marks = id * 2654435761u; // others than the parent's, which walks over the same connections
	*alive = 1;
	lock_child();
	files_child();
	heirs_child();
	if (cloned) {
		family_cloned();
		process_conns(process_inherit);
	} else {
		family_sit(*heir);
	}
	buffer_child(cloned);
	rendezvous_child();
	epset_child();
	family_child();
	channel_spare();
	nap_child();
}

void process_begin(void)
{
	if (!real._exit)
		real_init();
	if (process_alive) {
		if (*process_alive)
			return;
		if (!config.off)
			child();
		else
			files_forget(true); // nothing was counted for it
		*alive = 1;
		return;
	}
	int saved = errno;
	clock_origin = (struct clock_both){clock_ns(), clock_ticks()};
	config_init();
	config.off |= !real_complete();
	// Not mmap and madvise: an allocator's own may be made of syscall, too.
	uint32_t *p = (uint32_t *)real.syscall(SYS_mmap, NULL, (size_t)4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, (off_t)0);
	if (p == MAP_FAILED || real.syscall(SYS_madvise, p, (size_t)4096, MADV_WIPEONFORK) < 0) {
		static uint32_t always = 1;
		p = &always;
		config.off = true;
	}
	*p = 1;
	id = own_id();
	alive = p;
	process_alive = p;
	errno = saved;
}

__attribute__((constructor)) static void loaded(void) { process_begin(); }

static void leave(void)
{
	if (config.off || !alive || !*alive || process_borrowed())
		return;
	process_leaving = true;
	for (int fd = 0; fd < files_top(); fd++)
		if (files_conn(fd))
			conn_close(fd, false);
	buffer_exit();
	rendezvous_retire();
}

__attribute__((destructor)) static void unloaded(void) { leave(); }

static pid_t forked(pid_t (*next)(void))
{
	HOOK();
	if (config.off || files_top() == 0 || heir) // in a static program fork calls our _Fork
		return next();
	uint64_t seat = family_seat();
	heir = &seat;
	files_fork();
	process_conns(process_inherit);
	buffer_fork();
	pid_t pid = next();
	int saved = errno;
	if (pid == 0) {
		process_begin(); // unless a handler of pthread_atfork has called us
	} else if (pid < 0) {
		process_conns(process_disinherit);
		family_unseat(seat);
	}
	files_forked();
	heir = NULL;
	if (pid != 0)
		buffer_forked(pid > 0);
	errno = saved;
	return pid;
}

EXPORT pid_t fork(void) { return forked(real.fork); }
ALSO(__fork, fork);

// alone: there is no other thread. The C library's word stays false after the first one.
static bool alone(void)
{
	struct stat s;
	int saved = errno;
	bool is = single_thread() || (real_fstatat(AT_FDCWD, "/proc/self/task", &s, 0) == 0 && s.st_nlink == 3);
	errno = saved;
	return is;
}

// process_vfork tells what vfork goes on with.
__attribute__((used)) pid_t (*process_vfork(void))(void)
{
	HOOK();
	bool empty = config.off || alone();
	for (int fd = 0; empty && !config.off && fd < files_top(); fd++)
		empty = !files_table[fd];
	lent = empty && !config.off; // a filter may forbid to ask who we are
	return empty ? real.vfork : fork;
}

// It goes on in the frame of its caller, to which it returns twice.
#if defined __x86_64__
#define VFORK "endbr64; subq $8, %rsp; call process_vfork; addq $8, %rsp; jmp *%rax"
#elif defined __aarch64__
#define VFORK "hint #34; stp x29, x30, [sp, #-16]!; bl process_vfork; ldp x29, x30, [sp], #16; mov x16, x0; br x16"
#endif
#ifdef VFORK
__asm__(".pushsection .text; .globl vfork, __vfork; .type vfork, %function; .set __vfork, vfork; vfork: " VFORK "; .size vfork, . - vfork; .popsection");
#else
EXPORT pid_t vfork(void) { return fork(); }
ALSO(__vfork, vfork);
#endif

// As fork, but without the handlers of pthread_atfork.
EXPORT pid_t _Fork(void) { return forked(real._Fork); }

// The C library's own daemon() forks and leaves past our hooks.
EXPORT int daemon(int stay, int keep_files)
{
	HOOK();
	pid_t pid = fork();
	if (pid < 0)
		return -1;
	if (pid > 0)
		_exit(0);
	if (setsid() < 0 || (!stay && chdir("/") < 0))
		return -1;
	int fd = keep_files ? -1 : open("/dev/null", O_RDWR);
	for (int i = 0; i <= STDERR_FILENO && fd >= 0; i++)
		dup2(fd, i);
	if (fd > STDERR_FILENO)
		close(fd);
	return keep_files || fd >= 0 ? 0 : -1;
}

EXPORT void _exit(int status)
{
	HOOK();
	leave();
	real._exit(status);
	__builtin_unreachable();
}
EXPORT void _Exit(int status) { _exit(status); }

static void leave_one(struct conn *c, int fd, bool first)
{
	if (first)
		conn_quit(c, fd, conn_never);
}

void process_leave(enum reason why)
{
	if (conn_never != REASON_NONE)
		return;
	conn_never = why;
	process_conns(conn_halt);
	process_conns(leave_one);
}

void process_confine(enum reason why)
{
	if (config.off || process_borrowed())
		return;
	int saved = errno;
	process_leave(why);
	channel_kill_all(why);
	bool got = rendezvous_hold();
	rendezvous_forget();
	conn_unkickable(); // a late kick would have the kernel return from its handler
	config.off = true;
	rendezvous_unhold(got);
	files_forget(false); // of the connections calls may be asleep
	errno = saved;
}

EXPORT int unshare(int flags)
{
	HOOK();
	if (flags & CLONE_FILES && !single_thread())
		process_confine(REASON_SHARED);
	return real.unshare(flags);
}

// All that is mapped would be touched and kept in memory, windows too.
EXPORT int mlockall(int flags)
{
	HOOK();
	if (!config.off) {
		process_leave(REASON_MEMORY);
		channel_kill_all(REASON_MEMORY);
		rendezvous_sweep();
	}
	return real.mlockall(flags);
}
