// SPDX-License-Identifier: Apache-2.0
//
// beside.c is a preloaded library as people have them: its mmap is made of syscall, as that of
// gperftools' allocator is and already used before constructors run, its clock
// stands still and its files are old, as faketime has it.
#define _GNU_SOURCE
#include <fcntl.h>
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

__attribute__((constructor)) static void loaded(void) { munmap(mmap(NULL, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096); }
