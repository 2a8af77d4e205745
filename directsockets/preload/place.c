// SPDX-License-Identifier: Apache-2.0
//
// The places are a process' own, guarded by the flag of rendezvous.c.
#include "real.h"

#include "place.h"

#include "conn.h"
#include "process.h"

enum { PLACES = 16384 };
static int by_ino[PLACES], by_lane[PLACES];

int *place_of(uint64_t ino) { return &by_ino[ino % PLACES]; }

int *place_on(const struct channel *ch, uint32_t lane) { return &by_lane[(ch->serial * LANE_MOST + lane) % PLACES]; }

struct conn *place_find(int *place, bool (*is)(const struct conn *c, const struct channel *ch, const struct message *m),
			const struct channel *ch, const struct message *m)
{
	for (int i = -1; i < files_top(); i++) {
		int fd = i < 0 ? *place : i;
		struct conn *c = conn_get(fd);
		if (c && c->owner == process_id() && is(c, ch, m)) {
			*place = fd;
			return c;
		}
		if (c)
			conn_put(c);
	}
	return NULL;
}
