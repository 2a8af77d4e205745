// Included before all else in programs that are built with musl (BuildMusl): what they call that musl
// lacks is the system call, as in programs that look for it at run time.
#pragma GCC system_header
#include <errno.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#define CLOSE_RANGE_UNSHARE 2
#define CLOSE_RANGE_CLOEXEC 4

static inline const char *strerrorname_np(int e)
{
#define NAME(name) \
	if (e == name) \
		return #name;
	NAME(EPERM) NAME(ENOENT) NAME(EINTR) NAME(EIO) NAME(EBADF) NAME(ECHILD) NAME(EAGAIN) NAME(ENOMEM) NAME(EACCES) NAME(EFAULT)
	NAME(EEXIST) NAME(ENOTDIR) NAME(EINVAL) NAME(EMFILE) NAME(ENOTTY) NAME(ENOSPC) NAME(ESPIPE) NAME(EPIPE) NAME(ENOSYS)
	NAME(ENOTSOCK) NAME(EDESTADDRREQ) NAME(EMSGSIZE) NAME(ENOPROTOOPT) NAME(EOPNOTSUPP) NAME(EAFNOSUPPORT) NAME(EADDRINUSE)
	NAME(EADDRNOTAVAIL) NAME(ENETUNREACH) NAME(ECONNABORTED) NAME(ECONNRESET) NAME(ENOBUFS) NAME(EISCONN) NAME(ENOTCONN)
	NAME(ESHUTDOWN) NAME(ETIMEDOUT) NAME(ECONNREFUSED) NAME(EHOSTUNREACH) NAME(EALREADY) NAME(EINPROGRESS) NAME(ECANCELED)
#undef NAME
	return e ? strerror(e) : "0";
}

struct scm_timestamping {
	struct timespec ts[3];
};

static inline int close_range(unsigned from, unsigned to, int flags) { return (int)syscall(SYS_close_range, from, to, flags); }
static inline void closefrom(int from) { close_range((unsigned)from, ~0u, 0); }
static inline ssize_t preadv2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	return syscall(SYS_preadv2, fd, v, n, at, 0L, flags);
}
static inline ssize_t pwritev2(int fd, const struct iovec *v, int n, off_t at, int flags)
{
	return syscall(SYS_pwritev2, fd, v, n, at, 0L, flags);
}
static inline int execveat(int dir, const char *path, char *const argv[], char *const env[], int flags)
{
	return (int)syscall(SYS_execveat, dir, path, argv, env, flags);
}
static inline int epoll_pwait2(int set, struct epoll_event *v, int n, const struct timespec *t, const sigset_t *mask)
{
	return (int)syscall(SYS_epoll_pwait2, set, v, n, t, mask, (size_t)_NSIG / 8);
}
static inline int posix_spawn_file_actions_addclosefrom_np(posix_spawn_file_actions_t *a, int from) { return (void)a, (void)from, ENOSYS; }
