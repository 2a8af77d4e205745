// SPDX-License-Identifier: Apache-2.0
//
// Pieces of files that stay in our windows, because they are sent again and again.
#ifndef SHELF_H
#define SHELF_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { SHELF_PARTS = 16, SHELF_SEEN = 64, SHELF_LANES = 4096 };

struct filemap;
struct lane_pool;
struct lane_tx;

// A window that has a chunk of a file, or some of it.
struct shelf_part {
	_Atomic uint64_t key;   // which one; see shelf.c
	_Atomic uint64_t range; // the bytes of the window that have been sent: from, to
	_Atomic uint32_t window;
	_Atomic uint32_t used; // since somebody looked for one to give away
};

// Of a pool, in the memory of the family.
struct shelf {
	struct shelf_part part[SHELF_PARTS];
	_Atomic uint64_t seen[SHELF_SEEN];  // keys that were missed
	_Atomic uint64_t lent[SHELF_LANES]; // parts that a lane has lent, and the end of its last such piece
	_Atomic uint32_t lanes;             // that ever had one
	_Atomic uint32_t hand;              // where to look for a part next
};

// shelf_lend looks for what a file has at an offset, up to n bytes, and puts it on the shelf if it was
// sent before. It returns how many of them are at *from, where they stay until the reader has taken them
// if they are what the lane announces next. 0: none.
size_t shelf_lend(struct lane_tx *t, struct filemap *m, off_t at, size_t n, const uint8_t **from);

// shelf_keep: what a lane has lent stays until its reader has all before that position.
void shelf_keep(struct lane_pool *p, uint32_t lane, uint64_t end);
#define SHELF_EVER UINT64_MAX

// shelf_fresh: the lane begins anew. shelf_end: all windows are another channel's.
void shelf_fresh(struct lane_pool *p, uint32_t lane);
void shelf_end(struct lane_pool *p);

#endif
