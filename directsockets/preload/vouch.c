// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include "vouch.h"

#include "conn.h"

enum reason vouch_send(const struct conn *c, int fd, struct channel *ch, const struct message *m)
{
	struct proof p;
	if (!proof_make(fd, c->peer_net != 0, &p))
		return REASON_FILES;
	bool ok = channel_send(ch, m, (int[]){p.socket, p.diag}, p.diag < 0 ? 1 : 2);
	proof_drop(&p);
	return ok ? REASON_NONE : REASON_NO_PEER;
}

void vouch_refuse(struct channel *ch, const struct message *m, enum reason why)
{
	struct message no = {
		.kind = MESSAGE_ATTACH_NO, .version = LANE_VERSION, .lane = m->lane, .generation = m->generation, .reason = why};
	channel_send(ch, &no, NULL, 0);
}

enum reason vouch_why(const struct conn *c, int fd, const struct channel *ch, const struct message *m, const struct proof *handed)
{
	enum reason why = proof_check(c, m->ino, ch->uid, handed);
	return why == REASON_PROOF && conn_fin_came(fd) ? REASON_PEER_GONE : why;
}
