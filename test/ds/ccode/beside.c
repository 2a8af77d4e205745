// SPDX-License-Identifier: Apache-2.0
//
// beside.c is a preloaded library as people have them: its mmap is made of syscall, as that of
// gperftools' allocator is and already used before constructors run, its clock
// stands still and its files are old, as faketime has it, and it looks at some of the program's calls,
// for which it finds the C library's functions in two ways; as torsocks it does so when it begins, too. Others are
// made of syscall.
#include <dlfcn.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
	return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
}

int clock_gettime(clockid_t clock, struct timespec *t)
{
	(void)clock;
	*t = (struct timespec){.tv_sec = 1577836800};
	return 0;
}

int fstatat(int dir, const char *name, struct stat *st, int flags)
{
	int r = (int)syscall(SYS_newfstatat, dir, name, st, flags);
	if (r == 0)
		st->st_mtime = 1000000000;
	return r;
}

ssize_t read(int fd, void *p, size_t n)
{
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	ssize_t r = ((ssize_t (*)(int, void *, size_t))dlsym(libc, "read"))(fd, p, n);
	dlclose(libc);
	return r;
}

int poll(struct pollfd *p, nfds_t n, int timeout)
{
	return ((int (*)(struct pollfd *, nfds_t, int))dlsym(RTLD_NEXT, "poll"))(p, n, timeout);
}

ssize_t write(int fd, const void *p, size_t n) { return syscall(SYS_write, fd, p, n); }

// Called while our library begins, too.
pid_t getpid(void) { return (pid_t)syscall(SYS_getpid); }

// Likewise. That must not be while this one begins: it would wait for its end.
static int beginning;

char *getenv(const char *name)
{
	if (beginning)
		abort();
	return ((char *(*)(const char *))dlsym(RTLD_NEXT, "getenv"))(name);
}

__attribute__((constructor)) static void loaded(void)
{
	beginning = 1;
	void *libc = dlopen("libc.so.6", RTLD_LAZY);
	if (!dlsym(libc, "recv"))
		abort();
	dlclose(libc);
	beginning = 0;
	munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096);
}
