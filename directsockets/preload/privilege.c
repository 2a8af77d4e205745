// SPDX-License-Identifier: Apache-2.0
//
// A process that changes its user, groups or capabilities. What it proved to peers
// with the old ones does not hold with the new, nor may it keep what only the old
// ones could reach: connections on lanes go back to TCP, channels are given up, and
// listener and directory are made and opened again at need, if that is permitted.
//
// If the call fails afterwards, nothing but speed is lost.
#include "hook.h"

#include <grp.h>

#include "board.h"
#include "channel.h"
#include "config.h"
#include "directory.h"
#include "files.h"
#include "rendezvous.h"

static void renounce(struct conn *c, int fd, bool first)
{
	if (first && conn_engaged(c))
		conn_quit(c, fd, REASON_PRIVILEGE);
	else if (first)
		rendezvous_release(c);
}

static void before(void)
{
	if (config.off || directory < 0 || process_borrowed())
		return; // nothing proven yet
	process_conns(conn_halt);
	process_conns(renounce);
	channel_kill_all(REASON_PRIVILEGE);
	rendezvous_sweep();
	rendezvous_retire();
	board_close();
	directory_close();
}

#define PRIVILEGE(name, params, args) \
	EXPORT int name params \
	{ \
		HOOK(); \
		before(); \
		return real.name args; \
	}
PRIVILEGE(setuid, (uid_t a), (a))
PRIVILEGE(setgid, (gid_t a), (a))
PRIVILEGE(seteuid, (uid_t a), (a))
PRIVILEGE(setegid, (gid_t a), (a))
PRIVILEGE(setreuid, (uid_t a, uid_t b), (a, b))
PRIVILEGE(setregid, (gid_t a, gid_t b), (a, b))
PRIVILEGE(setresuid, (uid_t a, uid_t b, uid_t c), (a, b, c))
PRIVILEGE(setresgid, (gid_t a, gid_t b, gid_t c), (a, b, c))
PRIVILEGE(setgroups, (size_t n, const gid_t *list), (n, list))
PRIVILEGE(initgroups, (const char *user, gid_t group), (user, group))
int capset(void *header, const void *data); // <sys/capability.h> is not the C library's
PRIVILEGE(capset, (void *header, const void *data), (header, data))
