// SPDX-License-Identifier: Apache-2.0
//
// Which descriptor of a connection to use where another thread may close the one that is known.
#ifndef NUMBER_H
#define NUMBER_H

#include "family.h"
#include "files.h"

// number_here is a descriptor of it in this process, or -1.
int number_here(const struct conn *c);

// number_now is the descriptor to use in a call that began with fd; -1: this process has none any more.
int number_still(const struct conn *c, int fd);
static inline int number_now(const struct conn *c, int fd) { return files_conn(fd) == c ? fd : number_still(c, fd); }

// number_pin is a descriptor of a connection that came from conn_get(fd), for whoever walks over
// connections. -1: it is closed. Without a descriptor left it is fd itself.
int number_pin(const struct conn *c, int fd);
void number_unpin(int pin, int fd);

#endif
