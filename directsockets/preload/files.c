// SPDX-License-Identifier: Apache-2.0
//
// Our own descriptors sit above the numbers that programs reach, beyond their limit
// if that can be, so that "lowest free number" and "too many open files" stay what
// they were and select() keeps its 1024. The hooks for close, close_range, closefrom and dup2 treat them as not there.
#include "real.h"

#include "clock.h"
#include "files.h"
#include "single.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>

_Atomic uintptr_t files_table[FILES_MAX];
static _Atomic int top, ours_top, ours_bottom = FILES_MAX;

static _Atomic uint32_t changing; // threads between files_begin and files_end
static _Atomic uint32_t lost;     // of them, those that never came to the end
static _Atomic bool forking;
static __thread unsigned within __attribute__((tls_model("initial-exec")));

// yet_a_while lets others go on, at most for a second or so: who has left by longjmp does not, and
// who forks may be in a handler of pthread_atfork that wants what we hold.
static bool yet_a_while(unsigned n)
{
	enum { YIELDS = 20, NAPS = 10000 };
	if (n < YIELDS)
		sched_yield();
	else
		clock_nap();
	return n < YIELDS + NAPS;
}

void files_begin(void)
{
	if (within++ > 0 || single_thread())
		return;
	int saved = errno;
	// Either we see who forks, or that thread sees us: test/memmodel/channel (forking).
	atomic_fetch_add(&changing, 1);
	for (unsigned n = 0; atomic_load(&forking); n++) {
		atomic_fetch_sub(&changing, 1);
		bool more = yet_a_while(n);
		atomic_fetch_add(&changing, 1);
		if (!more)
			break;
	}
	errno = saved;
}

void files_end(void)
{
	if (--within == 0 && !single_thread())
		atomic_fetch_sub(&changing, 1);
}

void files_fork(void)
{
	if (within++ > 0 || single_thread())
		return;
	int saved = errno;
	for (unsigned n = 0; atomic_exchange(&forking, true) && yet_a_while(n); n++)
		;
	uint32_t now = atomic_load(&changing);
	if (now < lost)
		lost = now;
	for (unsigned n = 0; (now = atomic_load(&changing)) > lost; n++)
		if (!yet_a_while(n))
			lost = now;
	errno = saved;
}

void files_forked(void)
{
	if (--within == 0)
		forking = false;
}

void files_child(void)
{
	changing = lost = 0;
	forking = false;
	for (int fd = files_ours_from(0); fd < FILES_MAX; fd = files_ours_from(fd + 1))
		if (files_table[fd] == FILE_COPY)
			files_close(fd);
}

static void enter(int fd, uintptr_t v, _Atomic int *end)
{
	if ((unsigned)fd >= FILES_MAX)
		return;
	atomic_store_explicit(&files_table[fd], v, memory_order_release);
	int t = atomic_load_explicit(end, memory_order_relaxed);
	while (fd >= t && !atomic_compare_exchange_weak(end, &t, fd + 1))
		;
}

void files_set_conn(int fd, struct conn *c) { enter(fd, (uintptr_t)c, &top); }
void files_set_epset(int fd, struct epset *e) { enter(fd, (uintptr_t)e | FILE_EPSET, &top); }
void files_clear(int fd)
{
	if ((unsigned)fd < FILES_MAX)
		files_table[fd] = 0;
}
void files_forget(bool conns)
{
	for (int fd = 0; fd < top; fd++)
		if (files_epset(fd) || (conns && files_conn(fd)))
			files_clear(fd);
}
int files_top(void) { return top; }

int files_ours_from(int fd)
{
	fd = fd < ours_bottom ? ours_bottom : fd; // the pages between would be touched for nothing, in each child anew
	while (fd < ours_top && !files_ours(fd))
		fd++;
	return fd < ours_top ? fd : FILES_MAX;
}

// above copies fd to a number above the program's limit, so that the program keeps
// all it may open. The limit is raised for that moment, if it can be.
static int above_now(int fd)
{
	enum { BASE = 16384, ROOM = 8192 };
	struct rlimit is;
	if (getrlimit(RLIMIT_NOFILE, &is) < 0)
		return -1;
	struct rlimit more = {is.rlim_max < BASE + ROOM ? is.rlim_max : BASE + ROOM, is.rlim_max};
	if (is.rlim_cur > BASE && is.rlim_cur >= more.rlim_cur) // or another thread has raised it
		return real.fcntl(fd, F_DUPFD_CLOEXEC, BASE);
	rlim_t from = is.rlim_cur < BASE ? is.rlim_cur : BASE;
	if (more.rlim_cur <= from) // then in its highest quarter
		return real.fcntl(fd, F_DUPFD_CLOEXEC, (int)(is.rlim_cur - is.rlim_cur / 4));
	if (prlimit(0, RLIMIT_NOFILE, &more, NULL) < 0)
		return -1;
	int high = real.fcntl(fd, F_DUPFD_CLOEXEC, (int)(more.rlim_cur > BASE ? BASE : from));
	int saved = errno;
	prlimit(0, RLIMIT_NOFILE, &is, NULL);
	errno = saved;
	return high;
}

// above tries again, as another thread that does the same has lowered the limit behind us: EINVAL.
static int above(int fd)
{
	enum { TRIES = 100 };
	int high;
	for (int i = 0; (high = above_now(fd)) < 0 && errno == EINVAL && i < TRIES; i++)
		sched_yield();
	return high;
}

// ours_of is another descriptor of the same, of this kind.
static int ours_of(int fd, enum files_kind kind)
{
	int high = above(fd);
	if (high < 0)
		return -1;
	if (high >= FILES_MAX) {
		real.close(high);
		errno = EMFILE;
		return -1;
	}
	enter(high, kind, &ours_top);
	int bottom = ours_bottom;
	while (high < bottom && !atomic_compare_exchange_weak(&ours_bottom, &bottom, high))
		;
	return high;
}

int files_keep(int fd)
{
	if (fd < 0)
		return -1;
	int high = ours_of(fd, FILE_OURS), saved = errno;
	real.close(fd);
	errno = saved;
	return high;
}

int files_copy(int fd)
{
	files_begin();
	int high = ours_of(fd, FILE_COPY);
	files_end();
	return high;
}

void files_close(int fd)
{
	if (fd < 0)
		return;
	files_begin();
	files_clear(fd);
	real.close(fd);
	files_end();
}

int files_memory(const char *name, uint64_t size)
{
	struct rlimit r;
	if (getrlimit(RLIMIT_FSIZE, &r) == 0 && size > r.rlim_cur)
		return -1; // it counts for memory files too, and ends in SIGXFSZ
	int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
	if (fd < 0)
		return -1;
	if (ftruncate(fd, (off_t)size) < 0 || real.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0) {
		real.close(fd);
		return -1;
	}
	return files_keep(fd);
}
