// SPDX-License-Identifier: Apache-2.0
//
// An offer says in the fabric directory that a connection looks for its peer: a
// symbolic link, named by the connection as its owner sees it, to the owner's
// listener and the socket's inode (ext-ds.md, "Rendezvous"). Nobody waits for one,
// and whoever finds one that is malformed or old removes it.
//
// An end that will not take a lane says so in the same place, for the other end to tell its user.
// Only the process that has the socket at the other end is believed, or its user's others: the
// kernel knows the inode and the user of that socket.
#include "real.h"

#include "offer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "clock.h"
#include "directory.h"
#include "process.h"
#include "proof.h"
#include "tuple.h"

enum { OFFER_NAME = 2 + TUPLE_NAME };
static const char refusal[] = "no:"; // and inode, a colon, the reason's number
enum { REFUSAL = sizeof refusal - 1 };

static void offer_name(char to[OFFER_NAME], const struct tuple *t, uint64_t cookie)
{
	memcpy(to, "o-", 2);
	tuple_name(to + 2, t, cookie);
}

static bool leave(struct conn *c, const char *target)
{
	char name[OFFER_NAME];
	offer_name(name, &c->tuple, c->net);
	c->offer_out = symlinkat(target, directory, name) == 0;
	if (!c->offer_out && errno == EEXIST) { // left by a process that died
		directory_remove(name, S_IFLNK);
		c->offer_out = symlinkat(target, directory, name) == 0;
	}
	return c->offer_out;
}

bool offer_make(struct conn *c, const char *listener)
{
	char target[128];
	snprintf(target, sizeof target, "%s:%llu", listener, (unsigned long long)c->ino);
	return leave(c, target);
}

void offer_refuse(struct conn *c, enum reason why)
{
	static bool swept; // a process that only refuses has no listener, so it does not sweep otherwise
	char target[64];
	if (directory < 0 || (!c->other.local_port && !c->translates))
		return;
	if (!swept)
		directory_sweep();
	swept = true;
	c->owner = process_id();
	snprintf(target, sizeof target, "%s%llu:%u", refusal, (unsigned long long)c->ino, (unsigned)why);
	leave(c, target);
}

void offer_remove(struct conn *c)
{
	if (!c->offer_out)
		return;
	char name[OFFER_NAME];
	offer_name(name, &c->tuple, c->net);
	directory_remove(name, S_IFLNK);
	c->offer_out = false;
}

// refused is why the other end refuses, by the text of its refusal. Of a peer abroad our kernel
// knows no socket, so its refusal must be our user's and as young as an offer.
static enum reason refused(struct conn *c, const char *name, const char *text)
{
	struct stat st;
	char *end;
	uint64_t ino = strtoull(text, &end, 10);
	unsigned long why = *end == ':' ? strtoul(end + 1, &end, 10) : REASON_NONE;
	if (*end || why >= REASON_COUNT || real_fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
		return REASON_NONE;
	bool believed = c->peer_net ? st.st_uid == geteuid() && directory_age(directory, name) <= DIRECTORY_OFFER_S
				    : proof_other(c, ino, st.st_uid);
	return believed ? (enum reason)why : REASON_NONE;
}

bool offer_look(struct conn *c, char peer[64], uint64_t *ino, enum reason *no)
{
	*no = REASON_NONE;
	char name[OFFER_NAME], target[128];
	offer_name(name, &c->other, c->peer_net ? c->peer_net : c->net);
	ssize_t n = !c->other.local_port ? 0 : readlinkat(directory, name, target, sizeof target - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
	if (!strncmp(target, refusal, REFUSAL)) {
		*no = refused(c, name, target + REFUSAL);
		directory_remove(name, S_IFLNK); // nobody else has a use for it
		return false;
	}
	char *colon = strchr(target, ':');
	if (!colon || colon - target >= 64 || strchr(target, '/') || target[0] != 'p' ||
	    directory_age(directory, name) > DIRECTORY_OFFER_S) {
		directory_remove(name, S_IFLNK);
		return false;
	}
	*colon = 0;
	memcpy(peer, target, (size_t)(colon - target) + 1);
	*ino = strtoull(colon + 1, NULL, 10);
	return true;
}
