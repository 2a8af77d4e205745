// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Most busy connections have a plain peer, and finding that out by the fabric
// directory costs a dozen system calls, each time. So there is a board first: a
// file of the directory that all its processes map, with two times per port of a
// server, when last a busy connection to it was seen by a client with the library,
// and when by a server with the library. Each end notes its own side and looks at
// the other. While that is not recent, the end goes on counting; no end makes an
// offer before.
//
//	end:  note own time;  fence;  recent(other time)?  ──yes──► offer (rendezvous.c)
//	                                    └──no──► look again some calls later
//
// Of two that look at the same time at least one sees the other, as with offers.
// Ports share entries, namespaces too: a wrong yes costs what it cost without.
//
// Whoever can write the file can make others look for peers in vain or keep them
// from looking, and, by truncating it, end them. So it is used only in a directory
// that nobody but its owner can enter. Its pages are allocated when it is made: a
// full file system must not be met by a store.
#include "real.h"

#include "board.h"

#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "clock.h"
#include "directory.h"

enum { ENTRIES = 4096, RECENT_S = 2 };

struct board {
	_Atomic uint32_t connected[ENTRIES], accepted[ENTRIES]; // seconds
	_Atomic uint32_t brief[ENTRIES];
	_Atomic uint32_t translated; // written by exn-tun bridge: the ends may know different ports
};

static struct board *_Atomic board; // other threads may be at what is closed
static void *place; // where it is, or was
static _Atomic uint32_t brief[ENTRIES]; // where there is no board

void board_open(void)
{
	struct stat d, f;
	if (board || real_fstat(directory, &d) < 0 || d.st_uid != geteuid() || d.st_mode & 0077)
		return;
	int fd = openat(directory, "board-1", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
	if (fd < 0)
		return;
	if (real_fstat(fd, &f) == 0 && f.st_uid == d.st_uid && S_ISREG(f.st_mode) &&
	    (f.st_size >= (off_t)sizeof *board || posix_fallocate(fd, 0, sizeof *board) == 0)) {
		void *p = mmap(place, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | (place ? MAP_FIXED : 0), fd, 0);
		if (p != MAP_FAILED)
			board = place = p;
	}
	real.close(fd);
}

void board_close(void)
{
	void *none = board;
	board = NULL;
	if (none)
		mmap(none, sizeof *board, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

_Atomic uint32_t *board_brief(uint16_t port)
{
	struct board *b = board;
	return (b ? b->brief : brief) + port % ENTRIES;
}

bool board_translated(void)
{
	struct board *b = board;
	return !b || atomic_load_explicit(&b->translated, memory_order_relaxed);
}

bool board_met(uint16_t port, bool active) { return board && port && !board_translated() && board_meet(port, active); }

bool board_meet(uint16_t port, bool active)
{
	struct board *b = board;
	if (!b || !port)
		return true;
	uint32_t now = (uint32_t)clock_wall(), i = port % ENTRIES;
	_Atomic uint32_t *own = active ? &b->connected[i] : &b->accepted[i];
	_Atomic uint32_t *other = active ? &b->accepted[i] : &b->connected[i];
	if (atomic_load_explicit(own, memory_order_relaxed) != now)
		atomic_store_explicit(own, now, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst);
	uint32_t ago = now - atomic_load_explicit(other, memory_order_relaxed); // less than 0 if that was by a clock that is ahead
	return ago + RECENT_S <= 2 * RECENT_S || board_translated();
}
