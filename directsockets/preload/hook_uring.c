// SPDX-License-Identifier: Apache-2.0
//
// Exported: liburing's ways to a ring and to the kernel.
//
// An io_uring reads and writes sockets without any call of the process. But databases have
// one for their files (MariaDB), and those need not keep their connections off lanes. So
// requests are looked at before liburing hands them to the kernel. The first that names a
// connection of ours, or may do so without naming it, takes all back to TCP, for good.
// So does from the start a ring of which we see no requests: one that the kernel polls,
// that was made by syscall(2), whose requests are larger, or that of a liburing younger than
// this file. liburing makes its system calls itself, and so do those who have it linked in.
//
// One ring moves no bytes: since version 1.49 libuv (node) changes members of its epoll
// sets by one, many by one system call, which no hook sees either. It does without where
// it gets none, as in many containers, so it gets none with us: EPERM, as where
// kernel.io_uring_disabled is set. What it may have a ring for besides, files, it wants
// polled by the kernel, and only when UV_USE_IO_URING says so.
#include "hook.h"

#include <dlfcn.h>
#include <linux/io_uring.h>
#include <linux/time_types.h>
#include <signal.h>

#include "config.h"
#include "files.h"
#include "uring.h"

void uring_leave(void)
{
	int saved = errno;
	if (!config.off)
		process_leave(REASON_URING);
	errno = saved;
}

// A ring as liburing has it, from version 0.1 on: so much of it is the same in all of them.
struct io_uring {
	unsigned *khead, *ktail, *kring_mask, *kring_entries, *kflags, *kdropped, *array;
	struct io_uring_sqe *sqes;
	unsigned sqe_head, sqe_tail; // of the requests that the kernel has not been told of
};

// A request's operation: on a descriptor, which may not be one of ours; without one that matters.
enum { UNKNOWN, ON_FILE, ON_NONE };
static const uint8_t kinds[256] = {
	[IORING_OP_READV] = ON_FILE, [IORING_OP_WRITEV] = ON_FILE, [IORING_OP_READ] = ON_FILE, [IORING_OP_WRITE] = ON_FILE,
	[IORING_OP_READ_FIXED] = ON_FILE, [IORING_OP_WRITE_FIXED] = ON_FILE, [IORING_OP_FSYNC] = ON_FILE,
	[IORING_OP_SYNC_FILE_RANGE] = ON_FILE, [IORING_OP_FALLOCATE] = ON_FILE, [IORING_OP_FADVISE] = ON_FILE,
	[IORING_OP_CLOSE] = ON_FILE, [IORING_OP_NOP] = ON_NONE, [IORING_OP_TIMEOUT] = ON_NONE,
	[IORING_OP_TIMEOUT_REMOVE] = ON_NONE, [IORING_OP_ASYNC_CANCEL] = ON_NONE, [IORING_OP_LINK_TIMEOUT] = ON_NONE,
	[IORING_OP_OPENAT] = ON_NONE, [IORING_OP_STATX] = ON_NONE, [IORING_OP_MADVISE] = ON_NONE,
	[IORING_OP_OPENAT2] = ON_NONE, [IORING_OP_RENAMEAT] = ON_NONE, [IORING_OP_UNLINKAT] = ON_NONE,
};

static bool harmless(const struct io_uring_sqe *r)
{
	switch (kinds[r->opcode]) {
	case ON_FILE:
		return !(r->flags & IOSQE_FIXED_FILE) && !files_conn(r->fd);
	case ON_NONE:
		return true;
	}
	return false;
}

// look looks at the requests that are about to go to the kernel.
static void look(const struct io_uring *ring)
{
	if (files_top() == 0 || conn_never != REASON_NONE)
		return;
	for (unsigned i = ring->sqe_head; i != ring->sqe_tail; i++)
		if (!harmless(&ring->sqes[i & *ring->kring_mask])) {
			uring_leave();
			return;
		}
}

#ifdef EXTDS_STATIC // a static program gets no ring: what is linked in is not seen
static void *next(const char *name)
{
	(void)name;
	return NULL;
}
#else
// next finds liburing's function, also where that was loaded for one object alone.
static void *next(const char *name)
{
	static const char *const names[] = {"liburing.so.2", "liburing.so.1", "liburing-ffi.so.2"};
	void *f = dlsym(RTLD_NEXT, name);
	for (int i = 0; !f && i < 3; i++) {
		void *object = dlopen(names[i], RTLD_LAZY | RTLD_NOLOAD);
		if (!object)
			continue;
		f = dlsym(object, name);
		dlclose(object);
	}
	if (!f)
		dlerror(); // it was not the program that asked
	return f;
}
#endif

bool uring_for_epoll(const struct io_uring_params *p, const void *caller)
{
	return !(p->flags & IORING_SETUP_SQPOLL) && real_has(caller, "uv_loop_init");
}

// unseen: requests of a ring with these flags go ways that are not looked at.
static bool unseen(unsigned flags)
{
	enum { SQE128 = 1 << 10, KNOWN = 9 }; // version 2.9
	int (*major)(void) = (int (*)(void))next("io_uring_major_version"), (*minor)(void) = (int (*)(void))next("io_uring_minor_version");
	return flags & (IORING_SETUP_SQPOLL | SQE128) || (major && minor && (major() != 2 || minor() > KNOWN));
}

// URING exports one of liburing's functions: first does what is said, then calls it.
#define URING(name, params, args, first) \
	EXPORT int name params; \
	EXPORT int name params \
	{ \
		static int(*_Atomic theirs) params; \
		HOOK(); \
		if (!theirs) \
			theirs = (int(*) params)next(#name); \
		if (!theirs) { \
			errno = ENOSYS; \
			return -ENOSYS; \
		} \
		first; \
		return theirs args; \
	}

#define RING struct io_uring *ring
#define CQE struct io_uring_cqe **cqe
#define TIME struct __kernel_timespec *time
#define MASK sigset_t *mask

URING(io_uring_queue_init, (unsigned entries, RING, unsigned flags), (entries, ring, flags), if (unseen(flags)) uring_leave())
URING(io_uring_queue_init_params, (unsigned entries, RING, struct io_uring_params *p), (entries, ring, p), if (unseen(p->flags)) uring_leave())
URING(io_uring_queue_init_mem, (unsigned entries, RING, struct io_uring_params *p, void *at, size_t n), (entries, ring, p, at, n), if (unseen(p->flags)) uring_leave())
URING(io_uring_queue_mmap, (int fd, struct io_uring_params *p, RING), (fd, p, ring), if (unseen(p->flags)) uring_leave())
URING(io_uring_setup, (unsigned entries, struct io_uring_params *p), (entries, p), uring_leave())
// Others have a function of this name with one parameter more: it is passed on.
URING(io_uring_enter, (unsigned fd, unsigned submit, unsigned least, unsigned flags, void *arg, size_t n), (fd, submit, least, flags, arg, n), if (submit) uring_leave())
URING(io_uring_enter2, (unsigned fd, unsigned submit, unsigned least, unsigned flags, void *arg, size_t n), (fd, submit, least, flags, arg, n), if (submit) uring_leave())

URING(io_uring_submit, (RING), (ring), look(ring))
URING(io_uring_submit_and_wait, (RING, unsigned n), (ring, n), look(ring))
URING(io_uring_submit_and_get_events, (RING), (ring), look(ring))
URING(io_uring_submit_and_wait_timeout, (RING, CQE, unsigned n, TIME, MASK), (ring, cqe, n, time, mask), look(ring))
URING(io_uring_submit_and_wait_min_timeout, (RING, CQE, unsigned n, TIME, unsigned least, MASK), (ring, cqe, n, time, least, mask), look(ring))
URING(io_uring_submit_and_wait_reg, (RING, CQE, unsigned n, int index), (ring, cqe, n, index), look(ring))
URING(io_uring_wait_cqes, (RING, CQE, unsigned n, TIME, MASK), (ring, cqe, n, time, mask), look(ring))
URING(io_uring_wait_cqes_min_timeout, (RING, CQE, unsigned n, TIME, unsigned least, MASK), (ring, cqe, n, time, least, mask), look(ring))
URING(io_uring_wait_cqe_timeout, (RING, CQE, TIME), (ring, cqe, time), look(ring))
