// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A call knows its connection by the number of a descriptor. Another thread may close that
// meanwhile, and open another connection with the same number: what the kernel says of the number,
// or is told to do with it, is another connection's then.
//
// A call that goes on after it has slept takes the number that the connection has by then: the same,
// that of another descriptor, or of the copy that conn_close keeps for such calls.
//
// A thread that acts on connections which are not its own call's (process_conns, conn_heed) uses a
// copy. Who closes takes the connection out of the table first, so if it is there after the copy was
// made, that is of the connection (test/memmodel/channel: pinning).
#include "real.h"

#include "number.h"

#include <errno.h>

#include "clock.h"
#include "conn.h"
#include "files.h"
#include "process.h"
#include "single.h"

int number_here(const struct conn *c)
{
	for (int fd = 0; fd < files_top(); fd++)
		if (files_conn(fd) == c)
			return fd;
	return -1;
}

int number_still(const struct conn *c, int fd)
{
	enum { NAPS = 10000 };
	for (int other, i = 0; i < NAPS; i++, clock_nap()) {
		if (files_ours(fd) || process_leaving)
			return fd;
		if (c->kept && files_ours(c->kept)) // else it is another process'
			return c->kept;
		if ((other = number_here(c)) >= 0)
			return other;
		if (!c->sole || c->state != CONN_ENGAGED)
			return -1;
		// Who has taken the last one out of the table is about to keep it (conn_close).
	}
	return -1;
}

int number_pin(const struct conn *c, int fd)
{
	if (single_thread() || files_ours(fd))
		return fd;
	// Who closes it takes it out of the table first: if it is there now, the copy is of it.
	int copy = files_copy(fd);
	if (files_conn(fd) == c)
		return copy < 0 ? fd : copy;
	files_close(copy);
	return -1;
}

void number_unpin(int pin, int fd)
{
	int saved = errno;
	if (pin != fd)
		files_close(pin);
	errno = saved;
}
