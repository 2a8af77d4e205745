// SPDX-License-Identifier: Apache-2.0
//
// ZCopy: large blocking writes are copied by the reader, straight from the
// writer's memory into its own.
#ifndef ZCOPY_H
#define ZCOPY_H

#include <stdbool.h>
#include <stddef.h>

#include "config.h"
#include "family.h"

// A zcopy is the advert of one call that writes. Zero: none.
struct zcopy {
	struct conn *c; // NULL: none
	int fd;
	uint64_t seen; // of what was taken, so much has been counted
	bool over;     // it has ended,
	uint64_t end;  // when so much was taken
};

// Writing: all with tx_lock held.

// zcopy_offer advertises what is at the cursor, if that pays and the reader takes
// adverts. All but a window of a write: it returns when the rest has room, as without.
bool zcopy_offer(struct conn *c, int fd, const struct cursor *cur, struct zcopy *z);

// zcopy_count moves the cursor over what was taken since the last time, and forgets an
// advert that is over.
size_t zcopy_count(struct cursor *cur, struct zcopy *z);

// zcopy_stays: nothing speaks against the call's advert.
bool zcopy_stays(const struct zcopy *z);

// zcopy_withdraw ends the advert of whoever writes: from then on it is a write of as
// many bytes as were taken. False: the reader is copying, try again.
bool zcopy_withdraw(struct conn *c);

// zcopy_end withdraws the advert of this thread's call, if it has one, before the program
// gets at its memory: when the call ends, in a signal handler, if the thread is cancelled or
// leaves by longjmp.
// A reader that does not let go for 1 s costs the connection. Without the lock.
void zcopy_end(void);

// Reading: with rx_lock held.

// zcopy_pull copies out of the advert that r, a reader of c or a copy of it, has come to:
// at most a piece, and at most so many bytes. 0: it is withdrawn, or cannot be copied.
size_t zcopy_pull(struct conn *c, struct lane_rx *r, struct cursor *cur, size_t most);

void zcopy_reads(struct conn *c, bool large);

// zcopy_read tells the writer that a call reads n bytes: whether adverts are welcome.
static inline void zcopy_read(struct conn *c, size_t n)
{
	bool large = n >= config.zcopy;
	if (__builtin_expect(large ? !c->rx.advert.invited : c->rx.advert.left && c->rx.advert.invited, 0))
		zcopy_reads(c, large);
}

// zcopy_process is the process at the other end of a new channel, as a pidfd; -1 where it
// cannot be had.
int zcopy_process(const struct channel *ch);

#endif
