// SPDX-License-Identifier: Apache-2.0
//
// Descriptors: which of the program's are TCP connections or epoll sets, and
// our own, which the program must neither see nor close.
#ifndef FILES_H
#define FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct conn;
struct epset;

enum { FILES_MAX = 65536 }; // descriptors above are left alone

extern _Atomic uintptr_t files_table[FILES_MAX];
enum files_kind { FILE_CONN = 0, FILE_EPSET = 1, FILE_OURS = 2, FILE_COPY = FILE_OURS | 4 };

static inline struct conn *files_conn(int fd)
{
	if ((unsigned)fd >= FILES_MAX)
		return NULL;
	uintptr_t v = files_table[fd];
	return (v & 3) == FILE_CONN ? (struct conn *)v : NULL;
}
static inline struct epset *files_epset(int fd)
{
	if ((unsigned)fd >= FILES_MAX)
		return NULL;
	uintptr_t v = files_table[fd];
	return (v & 3) == FILE_EPSET ? (struct epset *)(v & ~(uintptr_t)3) : NULL;
}
static inline bool files_ours(int fd) { return (unsigned)fd < FILES_MAX && (files_table[fd] & 3) == FILE_OURS; }

// The table is copied by fork, what counts descriptors is not. So who changes both does it
// between files_begin and files_end, and no other thread forks meanwhile: it does between
// files_fork and files_forked. In a signal handler that has interrupted one of these none waits.
void files_begin(void);
void files_end(void);
void files_fork(void);
void files_forked(void); // in the child, too, after
void files_child(void);

void files_set_conn(int fd, struct conn *c);
void files_set_epset(int fd, struct epset *e);
void files_clear(int fd);
void files_forget(bool conns); // the sets, and connections
int files_top(void); // one more than the program's highest descriptor ever entered
int files_ours_from(int fd); // our lowest from this number on; FILES_MAX: none

// files_copy is another descriptor of the same, ours; -1 if there is no room. A forked child does
// not have it, in which it would keep open what this process closes.
int files_copy(int fd);

// files_keep moves a descriptor of ours out of the program's way and marks it;
// -1 (and it is closed) if there is no room.
int files_keep(int fd);
void files_close(int fd);

// files_memory makes a memory file of this size that cannot change it, kept.
int files_memory(const char *name, uint64_t size);

#endif
