// SPDX-License-Identifier: Apache-2.0
//
// The C library's own functions under the names that this library exports:
// `real.read` is what a program would have called without us.
//
// The library is compiled against glibc, and runs with musl, too, which takes libc.so.6 for
// itself and no notice of versions of symbols. Their structures are the same but for what real_size
// is about, and initializers of mutexes that are not plain ones. What musl does not have is weak
// here, or made of the system call.
#ifndef REAL_H
#define REAL_H

// The library that was built on a new system runs on those from glibc 2.28 on. Since 2.38
// strtoul and sscanf would be those of C23, which older ones do not have; versions are below.
#include <features.h>
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

// Functions that were not in libc.so.6 before 2.34 have the versions here that they had before, and may
// be missing: who does not load libpthread and libdl there has none, and no lanes (real_complete).
#ifndef EXTDS_STATIC
#define WEAK(text) _Pragma(#text)
#if defined __x86_64__
#define VERSION(name, version) WEAK(weak name) __asm__(".symver " #name ", " #name "@GLIBC_" version);
#elif defined __aarch64__
#define VERSION(name, version) WEAK(weak name) __asm__(".symver " #name ", " #name "@GLIBC_2.17");
#endif
VERSION(dladdr, "2.2.5")
VERSION(dladdr1, "2.3.3")
VERSION(dlclose, "2.2.5")
VERSION(dlerror, "2.2.5")
VERSION(dlinfo, "2.3.3")
VERSION(_pthread_cleanup_pop, "2.2.5")
VERSION(_pthread_cleanup_push, "2.2.5")
VERSION(pthread_key_create, "2.2.5")
VERSION(pthread_mutexattr_destroy, "2.2.5")
VERSION(pthread_mutexattr_init, "2.2.5")
VERSION(pthread_mutexattr_setpshared, "2.2.5")
VERSION(pthread_mutexattr_setrobust, "2.12")
VERSION(pthread_mutexattr_settype, "2.2.5")
VERSION(pthread_mutex_consistent, "2.12")
VERSION(pthread_mutex_trylock, "2.2.5")
VERSION(pthread_once, "2.2.5")
VERSION(pthread_setspecific, "2.2.5")
#undef VERSION
#undef WEAK
#endif

#define REAL_FUNCTIONS(F) \
	F(int, socket, (int, int, int)) \
	F(int, connect, (int, const struct sockaddr *, socklen_t)) \
	F(int, listen, (int, int)) \
	F(int, accept, (int, struct sockaddr *, socklen_t *)) \
	F(int, accept4, (int, struct sockaddr *, socklen_t *, int)) \
	F(int, shutdown, (int, int)) \
	F(int, close, (int)) \
	F(int, close_range, (unsigned, unsigned, int)) \
	F(void, closefrom, (int)) \
	F(int, dup, (int)) \
	F(int, dup2, (int, int)) \
	F(int, dup3, (int, int, int)) \
	F(int, fcntl, (int, int, ...)) \
	F(int, ioctl, (int, unsigned long, ...)) \
	F(int, setsockopt, (int, int, int, const void *, socklen_t)) \
	F(int, getsockopt, (int, int, int, void *, socklen_t *)) \
	F(ssize_t, read, (int, void *, size_t)) \
	F(ssize_t, readv, (int, const struct iovec *, int)) \
	F(ssize_t, recv, (int, void *, size_t, int)) \
	F(ssize_t, recvfrom, (int, void *, size_t, int, struct sockaddr *, socklen_t *)) \
	F(ssize_t, recvmsg, (int, struct msghdr *, int)) \
	F(int, recvmmsg, (int, struct mmsghdr *, unsigned, int, struct timespec *)) \
	F(ssize_t, write, (int, const void *, size_t)) \
	F(ssize_t, writev, (int, const struct iovec *, int)) \
	F(ssize_t, send, (int, const void *, size_t, int)) \
	F(ssize_t, sendto, (int, const void *, size_t, int, const struct sockaddr *, socklen_t)) \
	F(ssize_t, sendmsg, (int, const struct msghdr *, int)) \
	F(int, sendmmsg, (int, struct mmsghdr *, unsigned, int)) \
	F(ssize_t, sendfile, (int, int, off_t *, size_t)) \
	F(ssize_t, splice, (int, off_t *, int, off_t *, size_t, unsigned)) \
	F(FILE *, fdopen, (int, const char *)) \
	F(int, vdprintf, (int, const char *, va_list)) \
	F(int, __vdprintf_chk, (int, int, const char *, va_list)) \
	F(int, fclose, (FILE *)) \
	F(int, poll, (struct pollfd *, nfds_t, int)) \
	F(int, ppoll, (struct pollfd *, nfds_t, const struct timespec *, const sigset_t *)) \
	F(int, select, (int, fd_set *, fd_set *, fd_set *, struct timeval *)) \
	F(int, pselect, (int, fd_set *, fd_set *, fd_set *, const struct timespec *, const sigset_t *)) \
	F(int, epoll_create1, (int)) \
	F(int, epoll_ctl, (int, int, int, struct epoll_event *)) \
	F(int, epoll_wait, (int, struct epoll_event *, int, int)) \
	F(int, epoll_pwait, (int, struct epoll_event *, int, int, const sigset_t *)) \
	F(int, epoll_pwait2, (int, struct epoll_event *, int, const struct timespec *, const sigset_t *)) \
	F(ssize_t, preadv2, (int, const struct iovec *, int, off_t, int)) \
	F(ssize_t, pwritev2, (int, const struct iovec *, int, off_t, int)) \
	F(long, syscall, (long, ...)) \
	F(int, sigaction, (int, const struct sigaction *, struct sigaction *)) \
	F(int, sigprocmask, (int, const sigset_t *, sigset_t *)) \
	F(int, sigsuspend, (const sigset_t *)) \
	F(int, nanosleep, (const struct timespec *, struct timespec *)) \
	F(int, clock_nanosleep, (clockid_t, int, const struct timespec *, struct timespec *)) \
	F(int, sigtimedwait, (const sigset_t *, siginfo_t *, const struct timespec *)) \
	F(int, semtimedop, (int, struct sembuf *, size_t, const struct timespec *)) \
	F(int, sem_timedwait, (sem_t *, const struct timespec *)) \
	F(int, sem_clockwait, (sem_t *, clockid_t, const struct timespec *)) \
	F(int, msgsnd, (int, const void *, size_t, int)) \
	F(ssize_t, msgrcv, (int, void *, size_t, long, int)) \
	F(int, pthread_sigmask, (int, const sigset_t *, sigset_t *)) \
	F(void, longjmp, (struct __jmp_buf_tag *, int)) \
	F(void, _longjmp, (struct __jmp_buf_tag *, int)) \
	F(void, siglongjmp, (struct __jmp_buf_tag *, int)) \
	F(void, __longjmp_chk, (struct __jmp_buf_tag *, int)) \
	F(pid_t, fork, (void)) \
	F(pid_t, _Fork, (void)) \
	F(pid_t, vfork, (void)) \
	F(int, execve, (const char *, char *const *, char *const *)) \
	F(int, execvpe, (const char *, char *const *, char *const *)) \
	F(int, execveat, (int, const char *, char *const *, char *const *, int)) \
	F(int, fexecve, (int, char *const *, char *const *)) \
	F(int, posix_spawn, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	F(int, posix_spawnp, (pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const *, char *const *)) \
	F(int, system, (const char *)) \
	F(FILE *, popen, (const char *, const char *)) \
	F(int, posix_spawn_file_actions_init, (posix_spawn_file_actions_t *)) \
	F(int, posix_spawn_file_actions_destroy, (posix_spawn_file_actions_t *)) \
	F(int, posix_spawn_file_actions_adddup2, (posix_spawn_file_actions_t *, int, int)) \
	F(int, setuid, (uid_t)) \
	F(int, setgid, (gid_t)) \
	F(int, seteuid, (uid_t)) \
	F(int, setegid, (gid_t)) \
	F(int, setreuid, (uid_t, uid_t)) \
	F(int, setregid, (gid_t, gid_t)) \
	F(int, setresuid, (uid_t, uid_t, uid_t)) \
	F(int, setresgid, (gid_t, gid_t, gid_t)) \
	F(int, setgroups, (size_t, const gid_t *)) \
	F(int, initgroups, (const char *, gid_t)) \
	F(int, mlockall, (int)) \
	F(int, unshare, (int)) \
	F(int, capset, (void *, const void *)) \
	F(int, prctl, (int, ...)) \
	F(void, _exit, (int))

struct real {
#define F(ret, name, args) ret(*name) args;
	REAL_FUNCTIONS(F)
#undef F
};
extern struct real real;

// real_musl: the C library is musl. real_size is a length in a struct msghdr or cmsghdr, of which
// musl's programs set the lower half only.
#ifdef EXTDS_STATIC
enum { real_musl = false };
#else
extern bool real_musl;
#endif
static inline size_t real_size(size_t n) { return real_musl ? (uint32_t)n : n; }

#ifndef EXTDS_STATIC
extern const char *real_single; // __libc_single_threaded, or false where there is none (musl, glibc before 2.32)
#endif

static inline pid_t real_gettid(void) { return (pid_t)real.syscall(SYS_gettid); }
static inline int real_fstat(int fd, struct stat *s) { return (int)real.syscall(SYS_fstat, fd, s); }
static inline int real_fstatat(int dir, const char *path, struct stat *s, int flags)
{
	return (int)real.syscall(SYS_newfstatat, dir, path, s, flags);
}

bool real_complete(void);

// real_mutex makes a mutex that refuses who has it already. real_atfork is pthread_atfork.
void real_mutex(pthread_mutex_t *m);
void real_atfork(void (*before)(void), void (*after)(void));

// real_clock is clock_gettime with the kernel's time, also where another preloaded library shows the
// program another one, that stands still or runs ten times as fast (faketime).
extern int (*real_clock)(clockid_t, struct timespec *);

// real_has: the library that an address is in has a function of this name. real_behind: and that library
// comes behind ours, so that ours calls this function, directly or through others.
bool real_has(const void *address, const char *name);
bool real_behind(const void *caller, const char *name);

// The rest is not in static programs. real_loader looks up the loader's functions, which may be called for before
// anything else. real_beside: both functions are in one library, real_object. real_of_c: a function is the C
// library's, which has two parts before glibc 2.34.
extern void *(*real_dlopen)(const char *, int);
extern void *(*real_dlsym)(void *, const char *);
void real_loader(void);
bool real_beside(const void *f, const void *g);
bool real_of_c(const void *f);
struct link_map *real_object(const void *address);

// real_init resolves them; it is idempotent and safe to run twice at once.
void real_init(void);

#endif
