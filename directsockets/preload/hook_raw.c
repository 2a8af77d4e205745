// SPDX-License-Identifier: Apache-2.0
//
// Exported: ways past the other hooks. syscall(2) with the number of a call that
// we hook becomes that call; hook_uring.c has what concerns an io_uring. Programs with
// system calls of their own (Go, static ones) never meet this library; an instruction of
// their own in others is left to the count of bytes before a lane is used and to the
// tripwire after.
#include "hook.h"

#include <linux/seccomp.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#include "config.h"
#include "conn.h"
#include "files.h"
#include "passing.h"
#include "uring.h"

// preadv2 and pwritev2 with offset -1 are readv and writev with flags.
EXPORT ssize_t preadv2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	HOOK();
	if (at == -1)
		hook_leave(fd, REASON_RAW);
	return real.preadv2(fd, iov, n, at, flags);
}
EXPORT ssize_t preadv64v2(int fd, const struct iovec *iov, int n, off_t at, int flags) { return preadv2(fd, iov, n, at, flags); }

EXPORT ssize_t pwritev2(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
	HOOK();
	if (at == -1)
		hook_leave(fd, REASON_RAW);
	return real.pwritev2(fd, iov, n, at, flags);
}
EXPORT ssize_t pwritev64v2(int fd, const struct iovec *iov, int n, off_t at, int flags) { return pwritev2(fd, iov, n, at, flags); }

// by_hook makes call number n as if by its C function, if the descriptor is one that
// we know. False: it is the kernel's, also where ours would call who calls here.
static bool by_hook(long n, const long a[6], long *r, const void *caller)
{
#define P(i) ((void *)a[i])
#define CALL_UNLESS(theirs, name, ...) \
	case SYS_##name: \
		if (theirs) \
			return false; \
		*r = name(__VA_ARGS__); \
		return true
#define CALL(name, ...) CALL_UNLESS(real_behind(caller, #name), name, __VA_ARGS__)
// CALL_OR: libraries make the other function of this system call, too.
#define CALL_OR(other, name, ...) CALL_UNLESS(real_behind(caller, #name) || real_behind(caller, #other), name, __VA_ARGS__)
	switch (n) {
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
		uring_leave();
		return false;
	case SYS_seccomp: // libseccomp asks what there is by calls that cannot succeed
		if ((a[0] == SECCOMP_SET_MODE_STRICT && a[1] == 0) || (a[0] == SECCOMP_SET_MODE_FILTER && a[2]))
			process_confine(REASON_SECCOMP);
		return false;
		CALL(unshare, (int)a[0]);
		CALL(prctl, (int)a[0], a[1], a[2], a[3], a[4]);
		CALL(socket, (int)a[0], (int)a[1], (int)a[2]);
		CALL(epoll_create1, (int)a[0]); // Rust's polling makes its set so
#ifdef SYS_epoll_create
		CALL(epoll_create, (int)a[0]);
#endif
		CALL(execve, P(0), P(1), P(2));
		CALL(execveat, (int)a[0], P(1), P(2), P(3), (int)a[4]);
		CALL(close_range, (unsigned)a[0], (unsigned)a[1], (int)a[2]);
		CALL_OR(dup2, dup3, (int)a[0], (int)a[1], (int)a[2]);
#ifdef SYS_dup2
		CALL(dup2, (int)a[0], (int)a[1]);
#endif
	}
	bool into = n == SYS_splice && files_conn((int)a[2]);
	bool passes = (n == SYS_sendmsg || n == SYS_recvmsg) && passing_some(P(1));
	if (!into && !passes && ((unsigned long)a[0] >= FILES_MAX || !files_table[a[0]]))
		return false;
	int fd = (int)a[0];
	switch (n) {
		CALL(read, fd, P(1), (size_t)a[2]);
		CALL(write, fd, P(1), (size_t)a[2]);
		CALL(readv, fd, P(1), (int)a[2]);
		CALL(writev, fd, P(1), (int)a[2]);
		CALL_OR(recv, recvfrom, fd, P(1), (size_t)a[2], (int)a[3], P(4), P(5));
		CALL_OR(send, sendto, fd, P(1), (size_t)a[2], (int)a[3], P(4), (socklen_t)a[5]);
		CALL(recvmsg, fd, P(1), (int)a[2]);
		CALL(sendmsg, fd, P(1), (int)a[2]);
		CALL(recvmmsg, fd, P(1), (unsigned)a[2], (int)a[3], P(4));
		CALL(sendmmsg, fd, P(1), (unsigned)a[2], (int)a[3]);
		CALL(sendfile, fd, (int)a[1], P(2), (size_t)a[3]);
		CALL(splice, fd, P(1), (int)a[2], P(3), (size_t)a[4], (unsigned)a[5]);
		CALL(close, fd);
		CALL(dup, fd);
		CALL(fcntl, fd, (int)a[1], a[2]);
		CALL(ioctl, fd, (unsigned long)a[1], a[2]);
		CALL(shutdown, fd, (int)a[1]);
		CALL(connect, fd, P(1), (socklen_t)a[2]);
		CALL_OR(accept, accept4, fd, P(1), P(2), (int)a[3]);
		CALL(setsockopt, fd, (int)a[1], (int)a[2], P(3), (socklen_t)a[4]);
		CALL(getsockopt, fd, (int)a[1], (int)a[2], P(3), P(4));
		CALL(epoll_ctl, fd, (int)a[1], (int)a[2], P(3));
		CALL(epoll_pwait, fd, P(1), (int)a[2], (int)a[3], P(4)); // with a mask or without; the kernel's has the same size as glibc's
		CALL(epoll_pwait2, fd, P(1), (int)a[2], P(3), P(4));
#ifdef SYS_epoll_wait
		CALL(epoll_wait, fd, P(1), (int)a[2], (int)a[3]);
#endif
	case SYS_preadv2:
	case SYS_pwritev2:
		hook_leave(fd, REASON_RAW);
	}
	return false;
#undef CALL
#undef CALL_OR
#undef CALL_UNLESS
#undef P
}

// first: a call that matters although no descriptor is known yet.
static bool first(long n)
{
#ifdef SYS_epoll_create
	if (n == SYS_epoll_create)
		return true;
#endif
	return n == SYS_io_uring_setup || n == SYS_seccomp || n == SYS_prctl || n == SYS_unshare || n == SYS_socket || n == SYS_epoll_create1 ||
	       n == SYS_recvmsg || n == SYS_sendmsg;
}

// The kernel's own poll and select would wait for TCP bytes that never come.
static void leave_polled(long n, const long a[6], const void *caller)
{
	bool list = n == SYS_ppoll, sets = n == SYS_pselect6;
#ifdef SYS_poll
	list |= n == SYS_poll;
#endif
#ifdef SYS_select
	sets |= n == SYS_select;
#endif
	if ((list || sets) && real_behind(caller, list ? "poll" : "select"))
		return;
	for (long i = 0; list && i < a[1]; i++)
		hook_leave(((const struct pollfd *)a[0])[i].fd, REASON_RAW);
	for (int fd = 0; sets && fd < a[0] && fd < files_top(); fd++)
		for (int k = 1; k <= 3; k++)
			if (a[k] && ((const unsigned long *)a[k])[fd / (8 * (int)sizeof(long))] >> (fd % (8 * (int)sizeof(long))) & 1)
				hook_leave(fd, REASON_RAW);
}

// Not variadic as unistd.h declares it: nobody says how many arguments there are,
// but they lie where six would.
#define PARAMETERS long n, long a, long b, long c, long d, long e, long f
EXPORT long extds_syscall(PARAMETERS) __asm__("syscall");
long extds_syscall(PARAMETERS)
{
	long args[6] = {a, b, c, d, e, f}, r;
	const void *caller = __builtin_return_address(0);
	HOOK();
	if (n == SYS_io_uring_setup && !config.off && b && uring_for_epoll((const struct io_uring_params *)b, caller)) {
		errno = EPERM;
		return -1;
	}
	if (files_top() > 0 || first(n)) {
		if (by_hook(n, args, &r, caller))
			return r;
		leave_polled(n, args, caller);
	}
	return ((long (*)(PARAMETERS))(void (*)(void))real.syscall)(n, a, b, c, d, e, f);
}
