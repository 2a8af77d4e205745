// SPDX-License-Identifier: Apache-2.0
//
// Exported: ways past the other hooks. syscall(2) with the number of a call that
// we hook becomes that call; hook_uring.c has what concerns an io_uring. Programs with
// system calls of their own (Go, static ones) never meet this library; an instruction of
// their own in others is left to the count of bytes before a lane is used and to the
// tripwire after.
#include "hook.h"

#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/syscall.h>

#include "config.h"
#include "conn.h"
#include "files.h"
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
// we know. False: it is the kernel's.
static bool by_hook(long n, const long a[6], long *r)
{
#define P(i) ((void *)a[i])
	switch (n) {
	case SYS_io_uring_setup:
	case SYS_io_uring_enter:
		uring_leave();
		return false;
	case SYS_socket:
		*r = socket((int)a[0], (int)a[1], (int)a[2]);
		return true;
	case SYS_epoll_create1: // Rust's polling makes its set so
		*r = epoll_create1((int)a[0]);
		return true;
#ifdef SYS_epoll_create
	case SYS_epoll_create:
		*r = epoll_create((int)a[0]);
		return true;
#endif
	case SYS_execve:
		*r = execve(P(0), P(1), P(2));
		return true;
	case SYS_execveat:
		*r = execveat((int)a[0], P(1), P(2), P(3), (int)a[4]);
		return true;
	case SYS_close_range:
		*r = close_range((unsigned)a[0], (unsigned)a[1], (int)a[2]);
		return true;
	case SYS_dup3:
		*r = dup3((int)a[0], (int)a[1], (int)a[2]);
		return true;
#ifdef SYS_dup2
	case SYS_dup2:
		*r = dup2((int)a[0], (int)a[1]);
		return true;
#endif
	}
	if (n == SYS_splice && files_conn((int)a[2])) {
		*r = splice((int)a[0], P(1), (int)a[2], P(3), (size_t)a[4], (unsigned)a[5]);
		return true;
	}
	if ((unsigned long)a[0] >= FILES_MAX || !files_table[a[0]])
		return false;
	int fd = (int)a[0];
	switch (n) {
	case SYS_read:
		*r = read(fd, P(1), (size_t)a[2]);
		break;
	case SYS_write:
		*r = write(fd, P(1), (size_t)a[2]);
		break;
	case SYS_readv:
		*r = readv(fd, P(1), (int)a[2]);
		break;
	case SYS_writev:
		*r = writev(fd, P(1), (int)a[2]);
		break;
	case SYS_recvfrom:
		*r = recvfrom(fd, P(1), (size_t)a[2], (int)a[3], P(4), P(5));
		break;
	case SYS_sendto:
		*r = sendto(fd, P(1), (size_t)a[2], (int)a[3], P(4), (socklen_t)a[5]);
		break;
	case SYS_recvmsg:
		*r = recvmsg(fd, P(1), (int)a[2]);
		break;
	case SYS_sendmsg:
		*r = sendmsg(fd, P(1), (int)a[2]);
		break;
	case SYS_recvmmsg:
		*r = recvmmsg(fd, P(1), (unsigned)a[2], (int)a[3], P(4));
		break;
	case SYS_sendmmsg:
		*r = sendmmsg(fd, P(1), (unsigned)a[2], (int)a[3]);
		break;
	case SYS_sendfile:
		*r = sendfile(fd, (int)a[1], P(2), (size_t)a[3]);
		break;
	case SYS_splice:
		*r = splice(fd, P(1), (int)a[2], P(3), (size_t)a[4], (unsigned)a[5]);
		break;
	case SYS_close:
		*r = close(fd);
		break;
	case SYS_dup:
		*r = dup(fd);
		break;
	case SYS_fcntl:
		*r = fcntl(fd, (int)a[1], a[2]);
		break;
	case SYS_ioctl:
		*r = ioctl(fd, (unsigned long)a[1], a[2]);
		break;
	case SYS_shutdown:
		*r = shutdown(fd, (int)a[1]);
		break;
	case SYS_connect:
		*r = connect(fd, P(1), (socklen_t)a[2]);
		break;
	case SYS_accept4:
		*r = accept4(fd, P(1), P(2), (int)a[3]);
		break;
	case SYS_setsockopt:
		*r = setsockopt(fd, (int)a[1], (int)a[2], P(3), (socklen_t)a[4]);
		break;
	case SYS_getsockopt:
		*r = getsockopt(fd, (int)a[1], (int)a[2], P(3), P(4));
		break;
	case SYS_epoll_ctl:
		*r = epoll_ctl(fd, (int)a[1], (int)a[2], P(3));
		break;
	case SYS_epoll_pwait: // with a mask or without; the kernel's has the same size as glibc's
		*r = epoll_pwait(fd, P(1), (int)a[2], (int)a[3], P(4));
		break;
	case SYS_epoll_pwait2:
		*r = epoll_pwait2(fd, P(1), (int)a[2], P(3), P(4));
		break;
#ifdef SYS_epoll_wait
	case SYS_epoll_wait:
		*r = epoll_wait(fd, P(1), (int)a[2], (int)a[3]);
		break;
#endif
	case SYS_preadv2:
	case SYS_pwritev2:
		hook_leave(fd, REASON_RAW);
		return false;
	default:
		return false;
	}
	return true;
#undef P
}

// first: a call that matters although no descriptor is known yet.
static bool first(long n)
{
#ifdef SYS_epoll_create
	if (n == SYS_epoll_create)
		return true;
#endif
	return n == SYS_io_uring_setup || n == SYS_socket || n == SYS_epoll_create1;
}

// The kernel's own poll and select would wait for TCP bytes that never come.
static void leave_polled(long n, const long a[6])
{
	bool list = n == SYS_ppoll, sets = n == SYS_pselect6;
#ifdef SYS_poll
	list |= n == SYS_poll;
#endif
#ifdef SYS_select
	sets |= n == SYS_select;
#endif
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
	HOOK();
	if (n == SYS_io_uring_setup && !config.off && b && uring_for_epoll((const struct io_uring_params *)b, __builtin_return_address(0))) {
		errno = EPERM;
		return -1;
	}
	if (files_top() > 0 || first(n)) {
		if (by_hook(n, args, &r))
			return r;
		leave_polled(n, args);
	}
	return ((long (*)(PARAMETERS))(void (*)(void))real.syscall)(n, a, b, c, d, e, f);
}
