// SPDX-License-Identifier: Apache-2.0
//
// Where connections are found that a control message is about.
#ifndef PLACE_H
#define PLACE_H

#include "channel.h"

// A place remembers under which descriptor a connection was found last, by the number
// of its inode or its lane: a guess, which spares looking at all of them.
int *place_of(uint64_t ino);
int *place_on(const struct channel *ch, uint32_t lane);

// place_find looks for a connection of this process that is as wanted, first at the
// place, which says where it was. It has a use of the caller's.
struct conn *place_find(int *place, bool (*is)(const struct conn *c, const struct channel *ch, const struct message *m),
			const struct channel *ch, const struct message *m);

#endif
