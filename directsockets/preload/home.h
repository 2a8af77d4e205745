// SPDX-License-Identifier: Apache-2.0
//
// In which network namespace an address of the fabric lies.
#ifndef HOME_H
#define HOME_H

#include <stdbool.h>
#include <stdint.h>

enum { HOME_COOKIE = 71 }; // SO_NETNS_COOKIE

// home_cookie is that of the network namespace of a socket; 0: the kernel has none.
uint64_t home_cookie(int fd);

// home_find says where an address lies that a node of the fabric registered.
bool home_find(const uint8_t address[16], uint64_t *cookie);

// home_translates: somebody says how the other ends of connections see them whose addresses are translated on the way.
bool home_translates(void);

// home_translated is what was said of the connection that is seen so in that namespace.
struct tuple;
bool home_translated(const struct tuple *t, uint64_t net, struct tuple *other, uint64_t *other_net);

#endif
