// SPDX-License-Identifier: Apache-2.0
//
// An epoll set of the program.
#ifndef EPSET_H
#define EPSET_H

#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "family.h"

struct epset;

void epset_new(int fd); // from epoll_create
void epset_dup(int from, int to);
void epset_close(int fd); // the set's descriptor closes

// epset_get returns the set of a descriptor, or NULL, and keeps it until epset_put.
struct epset *epset_get(int fd);
void epset_more(struct epset *e); // one use more of one that is in use
void epset_put(struct epset *e);

int epset_ctl(struct epset *e, int epfd, int op, int fd, struct epoll_event *ev);
// timeout in ns, negative for none.
int epset_wait(struct epset *e, int epfd, struct epoll_event *evs, int max, int64_t timeout, const sigset_t *mask);

// For who watches the set in poll, select or another set. epset_watch gives the
// descriptor to sleep on instead of the set's own, -1 if there is none. epset_peek
// tells whether the set has events that the kernel does not know of.
// epset_harvest takes what woke it; dozing: by a call that sleeps on it, and disarms it
// then. True: the kernel's set may have something.
int epset_watch(struct epset *e);
bool epset_peek(struct epset *e);
bool epset_harvest(struct epset *e, bool dozing);
// epset_yield: the caller may have taken what woke somebody else who sleeps on the set.
// One of those looks.
void epset_yield(struct epset *e);
void epset_arm(struct epset *e);
void epset_disarm(struct epset *e);

// epset_engage makes every set of this process that watches c look at its lane.
// False: not now, or never if *why is set; nothing has changed then.
bool epset_engage(struct conn *c, int fd, enum reason *why);
// epset_disengaged: the connection has left its lanes for good.
void epset_disengaged(struct conn *c);
// epset_closed: a descriptor of a connection closes; copy is another one of it in
// this process, or -1. True: the kernel goes on reporting it, so it must not be engaged.
bool epset_closed(struct conn *c, int fd, int copy);

void epset_child(void); // after fork

#endif
