// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// sendfile on a lane copies out of the page cache into the window. pread does that page by
// page, which for a file in small pages is as dear as the copy. So a file of which parts
// were sent OFTEN by the same descriptor is mapped, and copied from there. Nothing that a
// program can notice may differ from pread:
//
//	length      A mapping shows zeros behind an end that has come nearer. So fstat is asked
//	            before each call; who truncates later races with it, as with the kernel's.
//	what it is  The descriptor may be of another file by now, closed in a way that we do not
//	            see: fstat tells. ctime, too: of a file in an overlay that was written to since,
//	            the map shows what was before.
//	no death    A page that is behind the end by now is SIGBUS. The copy is guarded: the
//	            handler jumps out of it, and pread says what there is. Handlers of the
//	            program are run by ours anyway (hook_signal.c), which looks first; without
//	            one there is ours. A thread that has SIGBUS blocked reads by pread.
//	let go      A map holds its file's blocks and file system, so the program's close ends it.
//
//	filemap_of[fd]:
//
//	 ┌───┐ each call ┌─────────┐   ┌───────┐
//	 │ 0 │ ────────► │ OFTEN-1 │ ─►│ NEVER │ ─────────► OFTEN + i: map i
//	 └───┘           └─────────┘   └───────┘ can be mapped        │
//	   ▲                               │ close                    │ close, or another file,
//	   └───────────────────────────────┴──────────────────────────┘ size or ctime
//
// Who closes changes filemap_of first, and then unmaps if there are no users; who takes a map
// is a user first, and then looks whether filemap_of still names it; all sequentially
// consistent. So one that is in use is not unmapped, and one that nobody names is, by the last user.
#include "real.h"

#include "filemap.h"

#include <errno.h>
#include <linux/magic.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <ucontext.h>

#ifndef XFS_SUPER_MAGIC
#define XFS_SUPER_MAGIC 0x58465342
#endif

enum {
	OFTEN = 8,
	MAPS = 64,
	NEVER = 255,
	LEAST = 16 << 10, // below, fstat costs what pread does
	MOST = 16 << 20,  // that a program's size in memory does not frighten
	CHANGING = -1,
};

struct filemap {
	_Atomic int users; // CHANGING: by one thread
	uint8_t *at;	   // NULL: free
	size_t n;
	_Atomic int fd;
	dev_t dev;
	ino_t ino;
	struct timespec changed;
};

_Atomic uint8_t filemap_of[FILES_MAX]; // 0 to OFTEN-1: parts that were sent; OFTEN+i: map i; NEVER
static struct filemap maps[MAPS];
static _Atomic unsigned end; // one more than the highest descriptor that was ever counted
_Static_assert(OFTEN + MAPS <= NEVER, "a byte for each");

// What this thread copies out of a map.
struct guard {
	sigjmp_buf escape;
	uintptr_t from;
	size_t n;
	struct guard *outer; // that of the call which a handler has interrupted
};
static __thread struct guard *guard __attribute__((tls_model("initial-exec")));
static __thread bool unmasked __attribute__((tls_model("initial-exec")));

// Does SIGBUS come to us first?
static enum { NOT_YET, YES, NEVERMORE } _Atomic handled;

void filemap_masked(void) { unmasked = false; }
void filemap_leave(void)
{
	guard = NULL;
	unmasked = false;
}

// reaches: SIGBUS would reach this thread.
static bool reaches(void)
{
	sigset_t blocked;
	if (!unmasked && real.pthread_sigmask(SIG_BLOCK, NULL, &blocked) == 0)
		unmasked = !sigismember(&blocked, SIGBUS);
	return unmasked;
}

void filemap_fault(const siginfo_t *info, void *context)
{
	const ucontext_t *interrupted = context;
	struct guard *g = guard;
	uintptr_t page = 4095;
	if (!g || info->si_code <= 0 || (uintptr_t)info->si_addr < (g->from & ~page) || (uintptr_t)info->si_addr >= g->from + g->n)
		return;
	real.pthread_sigmask(SIG_SETMASK, &interrupted->uc_sigmask, NULL);
	real.siglongjmp(g->escape, 1);
}

// bus is for programs without a handler of their own: SIGBUS ends them as ever.
static void bus(int signo, siginfo_t *info, void *context)
{
	struct sigaction fatal = {.sa_handler = SIG_DFL};
	filemap_fault(info, context);
	real.sigaction(signo, &fatal, NULL);
	if (info->si_code <= 0)
		raise(signo); // an access would be made once more
}

static bool default_action(const struct sigaction *a) { return !(a->sa_flags & SA_SIGINFO) && a->sa_handler == SIG_DFL; }

// handling sees to it that SIGBUS comes to us. A handler that the program has installed does
// not say its own address to the kernel, but ours (hook_signal.c).
static bool handling(void)
{
	struct sigaction is, shown, ours = {.sa_sigaction = bus, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	sigemptyset(&ours.sa_mask);
	if (handled == NOT_YET && real.sigaction(SIGBUS, NULL, &is) == 0 && sigaction(SIGBUS, NULL, &shown) == 0) {
		bool free = default_action(&is), counted = is.sa_sigaction != shown.sa_sigaction && !(is.sa_flags & SA_RESETHAND);
		handled = (free && real.sigaction(SIGBUS, &ours, NULL) == 0) || counted ? YES : NEVERMORE;
	}
	return handled == YES;
}

void filemap_action(struct sigaction *wanted)
{
	if (handled != YES)
		return;
	if (default_action(wanted)) {
		wanted->sa_sigaction = bus;
		wanted->sa_flags |= SA_SIGINFO | SA_ONSTACK;
	} else if (wanted->sa_handler == SIG_IGN || wanted->sa_flags & SA_RESETHAND) {
		handled = NEVERMORE; // or once
	}
}

bool filemap_handles(const struct sigaction *a) { return a->sa_flags & SA_SIGINFO && a->sa_sigaction == bus; }

static bool enter(struct filemap *m)
{
	int n = m->users;
	while (n >= 0 && !atomic_compare_exchange_weak(&m->users, &n, n + 1))
		;
	return n >= 0;
}

static bool named(struct filemap *m) { return atomic_load(&filemap_of[atomic_load(&m->fd)]) == OFTEN + (m - maps); }

// sweep unmaps what nobody names and nobody uses.
static void sweep(struct filemap *m)
{
	int none = 0;
	if (named(m) || !atomic_compare_exchange_strong(&m->users, &none, CHANGING))
		return;
	if (m->at && !named(m)) {
		int saved = errno;
		munmap(m->at, m->n);
		m->at = NULL;
		errno = saved;
	}
	m->users = 0;
}

void filemap_give(struct filemap *m)
{
	if (m && atomic_fetch_sub(&m->users, 1) == 1)
		sweep(m);
}

void filemap_forget(unsigned first, unsigned last)
{
	for (unsigned fd = first; fd <= last && fd < end; fd++) {
		uint8_t of = filemap_of[fd] ? atomic_exchange(&filemap_of[fd], 0) : 0;
		if (of >= OFTEN && of != NEVER)
			sweep(&maps[of - OFTEN]);
	}
}

// coherent: a map of a file of this kind shows what pread would read.
static bool coherent(int fd)
{
	struct statfs s;
	if (fstatfs(fd, &s) < 0)
		return false;
	switch ((unsigned long)s.f_type) {
	case EXT4_SUPER_MAGIC:
	case XFS_SUPER_MAGIC:
	case BTRFS_SUPER_MAGIC:
	case F2FS_SUPER_MAGIC:
	case TMPFS_MAGIC:
	case OVERLAYFS_SUPER_MAGIC:
		return true;
	}
	return false;
}

// map maps a file into a free place, if it is to be and can be.
static void map(int fd)
{
	uint8_t due = OFTEN - 1, claimed = NEVER;
	struct stat s;
	if (!atomic_compare_exchange_strong(&filemap_of[fd], &due, NEVER)) // another thread
		return;
	if (real_fstat(fd, &s) < 0 || !S_ISREG(s.st_mode) || s.st_size < LEAST || s.st_size > MOST || !coherent(fd) || !handling())
		return;
	for (struct filemap *m = maps; m < maps + MAPS; m++) {
		int none = 0;
		if (!atomic_compare_exchange_strong(&m->users, &none, CHANGING))
			continue;
		bool free = !m->at;
		if (free) {
			// Private: a shared one is in the way of F_SEAL_WRITE.
			void *at = mmap(NULL, m->n = (size_t)s.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
			if (at != MAP_FAILED) {
				m->at = at;
				m->fd = fd;
				m->dev = s.st_dev;
				m->ino = s.st_ino;
				m->changed = s.st_ctim;
				atomic_compare_exchange_strong(&filemap_of[fd], &claimed, (uint8_t)(OFTEN + (m - maps)));
			}
		}
		m->users = 0;
		sweep(m); // if it was let go meanwhile
		if (free)
			return;
	}
}

static bool same(const struct filemap *m, const struct stat *s)
{
	return s->st_ino == m->ino && s->st_dev == m->dev && (size_t)s->st_size == m->n && s->st_ctim.tv_sec == m->changed.tv_sec &&
	       s->st_ctim.tv_nsec == m->changed.tv_nsec;
}

struct filemap *filemap_take(int fd, size_t n)
{
	struct stat s;
	uint8_t of = (unsigned)fd < FILES_MAX ? filemap_of[fd] : NEVER;
	if (n < LEAST || of == NEVER)
		return NULL;
	int saved = errno;
	if (of < OFTEN) {
		unsigned top = end;
		while ((unsigned)fd >= top && !atomic_compare_exchange_weak(&end, &top, (unsigned)fd + 1))
			;
		if (of + 1 < OFTEN)
			atomic_compare_exchange_strong(&filemap_of[fd], &of, of + 1);
		else
			map(fd);
		errno = saved;
		return NULL;
	}
	struct filemap *m = &maps[of - OFTEN];
	if (!reaches() || !handling() || !enter(m))
		return NULL;
	bool ours = named(m) && m->fd == fd;
	if (ours && real_fstat(fd, &s) == 0 && same(m, &s))
		return m;
	if (ours) // it has changed
		atomic_compare_exchange_strong(&filemap_of[fd], &of, 0);
	filemap_give(m);
	errno = saved;
	return NULL;
}

// guarded copies n bytes of a map, or compares them. False: they differ, or not all is there any more.
static bool guarded(const uint8_t *from, size_t n, void *to, const void *with)
{
	struct guard g = {.from = (uintptr_t)from, .n = n, .outer = guard};
	bool done = true;
	if (sigsetjmp(g.escape, 0)) {
		guard = g.outer;
		return false;
	}
	guard = &g;
	atomic_signal_fence(memory_order_seq_cst);
	if (to)
		memcpy(to, from, n);
	else
		done = memcmp(from, with, n) == 0;
	atomic_signal_fence(memory_order_seq_cst);
	guard = g.outer;
	return done;
}

bool filemap_copy(const struct filemap *m, off_t at, void *to, size_t n) { return guarded(m->at + at, n, to, NULL); }
bool filemap_equal(const struct filemap *m, off_t at, const void *with, size_t n) { return guarded(m->at + at, n, NULL, with); }

static size_t left(const struct filemap *m, off_t at) { return at >= 0 && (size_t)at < m->n ? m->n - (size_t)at : 0; }

size_t filemap_has(const struct filemap *m, off_t at, dev_t *dev, ino_t *ino)
{
	*dev = m->dev;
	*ino = m->ino;
	return left(m, at);
}

ssize_t filemap_read(struct filemap *m, int fd, void *to, size_t n, off_t at)
{
	size_t there = m ? left(m, at) : 0, here = n < there ? n : there;
	if (here > 0 && filemap_copy(m, at, to, here))
		return (ssize_t)here;
	return pread(fd, to, n, at);
}
