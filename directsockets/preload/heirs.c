// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A program that inherits a connection knows nothing of lanes, and most never use what they
// inherit: a shell that a server starts by popen. While one may have it, a connection is on TCP.
// When all have ended it takes a lane, or goes back to the one it had.
//
// That they have ended is told by a witness, which each inherits as well: a descriptor of the
// fabric directory, opened for it, whose open file holds read locks on a byte for each of these
// connections, by the inode of its socket. The kernel drops them with the last copy of that
// descriptor, wherever it has got to. So anybody of the family can ask for the lock, and there is nothing to clean up.
//
// Invariant: `exposures` counts how often the connection was inherited, and rises after the lock
// is there; `ended` is what it was before a look that found no lock. Where they are equal, no program has it:
//
//	who starts a program              who engages the connection
//	  lock                              state = ENGAGING
//	  exposures + 1                     exposures == ended, or no lock: ENGAGED
//	  until it is not ENGAGING
//	  ENGAGED: back to TCP
//
// All are sequentially consistent, so one of both sees the other. Model: test/memmodel/channel (heirs).
//
// Some are given to a program for good: as descriptor 0, 1 or 2, if there can be no lock, or if it
// passes it on, and has this library (passing.c).
// A program that closes the witness and keeps the connection is not seen; if it
// writes, the peer's tripwire resets the connection.
#include "real.h"

#include "heirs.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "directory.h"
#include "files.h"
#include "passing.h"
#include "presence.h"
#include "rendezvous.h"

static __thread int witness __attribute__((tls_model("initial-exec"))); // of the next program; 0: none, -1: there can be none
static __thread uint64_t inode __attribute__((tls_model("initial-exec"))); // of its directory

static struct flock byte_of(const struct conn *c, short type)
{
	return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)c->heirs_at, .l_len = 1};
}

static int make(void)
{
	struct stat st;
	if (directory < 0) {
		bool got = rendezvous_hold();
		if (got)
			presence_prepared();
		rendezvous_unhold(got);
	}
	int fd = directory < 0 ? -1 : openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	int copy = files_copy(fd);
	real.close(fd);
	if (copy >= 0 && (real_fstat(copy, &st) < 0 || real.fcntl(copy, F_SETFD, 0) < 0)) {
		files_close(copy);
		copy = -1;
	}
	inode = st.st_ino;
	return copy;
}

// lock: heirs_left will find it.
static bool lock(struct conn *c)
{
	struct flock l = byte_of(c, F_RDLCK);
	if (witness == 0)
		witness = make();
	if (witness < 0 || (c->heirs_in != inode && c->exposures != c->ended))
		return false;
	c->heirs_in = inode;
	return real.fcntl(witness, F_OFD_SETLK, &l) == 0;
}

void heirs_add(struct conn *c, int fd)
{
	struct stat st;
	if (c->heirs_at == 0 && real_fstat(fd, &st) == 0)
		c->heirs_at = st.st_ino;
	if (fd <= STDERR_FILENO || !lock(c))
		c->exposed = true;
	atomic_fetch_add(&c->exposures, 1);
}

void heirs_child(void) { witness = 0; } // files_child has closed it

void heirs_done(void)
{
	int saved = errno, cancel;
	pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel); // close is a cancellation point
	if (witness > 0)
		files_close(witness);
	witness = 0;
	pthread_setcancelstate(cancel, NULL);
	errno = saved;
}

bool heirs_left(struct conn *c, int fd)
{
	uint32_t exposures = c->exposures;
	if (c->exposed || exposures == c->ended)
		return c->exposed;
	int saved = errno;
	struct stat st;
	struct flock l = byte_of(c, F_WRLCK);
	bool left = real_fstat(directory, &st) < 0 || st.st_ino != c->heirs_in || real.fcntl(directory, F_OFD_GETLK, &l) < 0 ||
		    l.l_type != F_UNLCK;
	if (!left && passing_spoilt(fd)) // by one that has ended: who got it does not have the lock
		c->exposed = left = true;
	if (!left)
		c->ended = exposures;
	errno = saved;
	return left;
}
