// SPDX-License-Identifier: Apache-2.0
//
// The addresses and ports of a connection, as its one end sees them.
#ifndef TUPLE_H
#define TUPLE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "family.h"

// tuple_side takes one end from a socket's name.
void tuple_side(uint8_t to[16], uint16_t *port, const struct sockaddr_storage *s);

// tuple_local: may this connection upgrade? A rule per kind of address:
//
//	loopback      127.0.0.0/8 or ::1 at both ends
//	the same      an address of this host at both ends, e.g. 10.0.0.5 to 10.0.0.5
//	subnets       both ends in EXN_DS_SUBNETS: for different addresses of this host
//
// These find a peer in this network namespace only: offers carry its cookie, and the
// proof asks the kernel, here, for the socket at the other end. A further rule for
// addresses of exn nodes has to name the namespace that such an address lies in;
// offers and proof then use that one instead. A peer on another host is never found.
bool tuple_local(const struct tuple *t);

// tuple_turn is how the other end sees it.
void tuple_turn(struct tuple *to, const struct tuple *t);

bool tuple_equal(const struct tuple *a, const struct tuple *b);

// tuple_first decides, alike at both ends, which of two crossing ATTACH stays: that
// of the end with the lower address.
bool tuple_first(const struct tuple *t);

#endif
