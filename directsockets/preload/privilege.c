// SPDX-License-Identifier: Apache-2.0
//
// A process that changes its user, groups or capabilities. What it proved to peers
// with the old ones does not hold with the new, nor may it keep what only the old
// ones could reach: connections on lanes go back to TCP, channels are given up, and
// listener and directory are made and opened again at need, if that is permitted.
//
// If the call fails afterwards, nothing but speed is lost.
//
// So does one that has the kernel filter its system calls, and for good: what the filter forbids,
// often by death, may be what this library calls.
#include "hook.h"

#include <grp.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>

#include "channel.h"
#include "config.h"
#include "directory.h"
#include "family.h"
#include "files.h"
#include "rendezvous.h"

static void renounce(struct conn *c, int fd, bool first)
{
	if (first && (conn_decided(c) || c->engaged)) // the peer takes no other lane for it
		conn_quit(c, fd, REASON_PRIVILEGE);
	else if (first)
		rendezvous_drop(c);
}

// give_up does all that. Other threads go on meanwhile, and until the change is done nothing of
// theirs comes nearer to a lane.
static void give_up(void)
{
	if (directory < 0)
		return; // nothing is proven yet
	process_conns(conn_halt);
	process_conns(renounce);
	channel_kill_all(REASON_PRIVILEGE);
	rendezvous_forget();
}

// complain says that root has become a user, for good, who cannot use the directory: the workers of many
// servers. Nobody would see it otherwise, since exn-tun run has looked as root.
static void complain(void)
{
	uid_t u, effective, saved;
	if (getresuid(&u, &effective, &saved) < 0 || !u || !effective || !saved || directory_permitted() || !family_complains())
		return;
	config_say("user %u may not use the fabric directory %s, so its connections stay on TCP: share one by a group that this user is in"
		   " (install -d -m 2770 -g GROUP DIR; EXN_PEERS=group exn-tun run --fabric DIR)",
		   (unsigned)effective, config.fabric);
}

#define PRIVILEGE(name, params, args) \
	EXPORT int name params \
	{ \
		HOOK(); \
		if (config.off || process_borrowed()) \
			return real.name args; \
		bool got = rendezvous_hold(); \
		give_up(); \
		bool root = geteuid() == 0; \
		int r = real.name args, saved = errno; \
		rendezvous_unhold(got); \
		if (root && geteuid() != 0) \
			complain(); \
		errno = saved; \
		return r; \
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

EXPORT int prctl(int option, ...)
{
	HOOK();
	va_list l;
	va_start(l, option);
	unsigned long a = va_arg(l, unsigned long), b = va_arg(l, unsigned long), c = va_arg(l, unsigned long), d = va_arg(l, unsigned long);
	va_end(l);
	if (option == PR_SET_SECCOMP && (a == SECCOMP_MODE_STRICT || b)) // else it asks whether there are filters
		process_confine(REASON_SECCOMP);
	return real.prctl(option, a, b, c, d);
}
