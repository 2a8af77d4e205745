// SPDX-License-Identifier: Apache-2.0
//
// Programs that inherit connections from this one, and whether they have ended.
#ifndef HEIRS_H
#define HEIRS_H

#include "family.h"

// heirs_add: the next program that this thread starts inherits c, as descriptor fd.
void heirs_add(struct conn *c, int fd);

// heirs_done: it has been started, or could not be. errno stays.
void heirs_done(void);

// heirs_child: by a handler, this process was forked in between.
void heirs_child(void);

// heirs_left: a program that has inherited c, which is our descriptor fd, may have it still.
bool heirs_left(struct conn *c, int fd);

#endif
