// SPDX-License-Identifier: Apache-2.0
//
// Files that are sent again and again are read where they are mapped.
#ifndef FILEMAP_H
#define FILEMAP_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "files.h"

struct filemap;

// filemap_take is called before n bytes of a file are sent. NULL: there is no map of all
// that it has now. What it returns, NULL too, is given back when the call ends or sleeps.
struct filemap *filemap_take(int fd, size_t n);
void filemap_give(struct filemap *m);

// filemap_read is pread, m the file's map or NULL.
ssize_t filemap_read(struct filemap *m, int fd, void *to, size_t n, off_t at);

// filemap_has is how many bytes of which file a map has from an offset on. filemap_copy copies n of these, and filemap_equal
// compares them; false, too, if some are not there any more.
size_t filemap_has(const struct filemap *m, off_t at, dev_t *dev, ino_t *ino);
bool filemap_copy(const struct filemap *m, off_t at, void *to, size_t n);
bool filemap_equal(const struct filemap *m, off_t at, const void *with, size_t n);

// filemap_close is called before a descriptor is closed, filemap_forget before those from first
// to last are.
void filemap_forget(unsigned first, unsigned last);
extern _Atomic uint8_t filemap_of[FILES_MAX];
static inline void filemap_close(int fd)
{
	if ((unsigned)fd < FILES_MAX && filemap_of[fd])
		filemap_forget((unsigned)fd, (unsigned)fd);
}

// SIGBUS (hook_signal.c). filemap_fault comes back if it is the program's.
void filemap_fault(const siginfo_t *info, void *context);
// filemap_leave: a handler leaves what it interrupted, by longjmp.
void filemap_leave(void);
// filemap_masked: this thread may not get SIGBUS any more.
void filemap_masked(void);
// filemap_action adapts what the program wants done; filemap_handles: it is the handler that we
// have where the program has none.
void filemap_action(struct sigaction *wanted);
bool filemap_handles(const struct sigaction *a);

#endif
