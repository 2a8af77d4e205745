// SPDX-License-Identifier: Apache-2.0
//
// An offer says in the fabric directory that a connection looks for its peer: a
// symbolic link, named by the connection as its owner sees it, to the owner's
// listener and the socket's inode (ext-ds.md, "Rendezvous"). Nobody waits for one,
// and whoever finds one that is malformed or old removes it.
#include "real.h"

#include "offer.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "directory.h"
#include "tuple.h"

enum { OFFER_NAME = 2 + TUPLE_NAME };

static void offer_name(char to[OFFER_NAME], const struct tuple *t, uint64_t cookie)
{
	memcpy(to, "o-", 2);
	tuple_name(to + 2, t, cookie);
}

bool offer_make(struct conn *c, const char *listener)
{
	char name[OFFER_NAME], target[128];
	offer_name(name, &c->tuple, c->net);
	snprintf(target, sizeof target, "%s:%llu", listener, (unsigned long long)c->ino);
	c->offer_out = symlinkat(target, directory, name) == 0;
	if (!c->offer_out && errno == EEXIST) { // left by a process that died
		directory_remove(name, S_IFLNK);
		c->offer_out = symlinkat(target, directory, name) == 0;
	}
	return c->offer_out;
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

bool offer_look(struct conn *c, char peer[64], uint64_t *ino)
{
	char name[OFFER_NAME], target[128];
	offer_name(name, &c->other, c->peer_net ? c->peer_net : c->net);
	ssize_t n = !c->other.local_port ? 0 : readlinkat(directory, name, target, sizeof target - 1);
	if (n <= 0)
		return false;
	target[n] = 0;
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
