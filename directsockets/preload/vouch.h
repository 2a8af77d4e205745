// SPDX-License-Identifier: Apache-2.0
//
// What the rendezvous says to a peer of a connection, and whether it believes what that says.
#ifndef VOUCH_H
#define VOUCH_H

#include "channel.h"
#include "proof.h"

// vouch_send sends a message with the proof that we own c.
enum reason vouch_send(const struct conn *c, int fd, struct channel *ch, const struct message *m);

// vouch_refuse answers ATTACH by a reason.
void vouch_refuse(struct channel *ch, const struct message *m, enum reason why);

// vouch_why is why not to believe that the peer owns the other end; a proof fails, too, while its
// socket is being closed.
enum reason vouch_why(const struct conn *c, int fd, const struct channel *ch, const struct message *m, const struct proof *handed);

#endif
