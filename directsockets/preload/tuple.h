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

// tuple_port is the port in a socket's name, network order; 0: it has none.
uint16_t tuple_port(const struct sockaddr *a, socklen_t n);

// tuple_know takes the ends and the inode of a connection from the kernel, unless they are known. False: it has no ends yet.
bool tuple_know(struct conn *c, int fd);

// tuple_identify names a connection: its ends, its inode, in which namespace the other
// end is, and how that sees it. REASON_NO_PEER: it has no ends yet. REASON_NONE: it may upgrade.
enum reason tuple_identify(struct conn *c, int fd);

// tuple_translated looks whether somebody says by now that the other end sees other addresses.
bool tuple_translated(struct conn *c);

// tuple_name writes a tuple and the cookie of its network namespace as text, and tuple_named reads that.
enum { TUPLE_NAME = 16 + 1 + 2 * (16 + 2 + 16 + 2) + 1 };
void tuple_name(char to[TUPLE_NAME], const struct tuple *t, uint64_t cookie);
bool tuple_named(const char *name, struct tuple *t, uint64_t *cookie);

struct subnet;
bool tuple_inside(const uint8_t address[16], const struct subnet *s);

// tuple_turn exchanges the ends.
void tuple_turn(struct tuple *to, const struct tuple *t);

// tuple_text writes "127.0.0.1:40000 to 127.0.0.1:80", or how little is known.
enum { TUPLE_TEXT = 2 * 48 + 24 };
void tuple_text(char to[TUPLE_TEXT], const struct conn *c);

bool tuple_equal(const struct tuple *a, const struct tuple *b);

// tuple_first decides, alike at both ends, which of two crossing ATTACH stays: that
// of the end with the lower address of its own.
bool tuple_first(const struct conn *c);

#endif
