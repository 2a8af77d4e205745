// SPDX-License-Identifier: Apache-2.0
//
// Whether a busy connection is to look for its peer now.
#ifndef WORTH_H
#define WORTH_H

#include "family.h"

// worth_now says so; if not, it sets when to ask again, and the reason.
bool worth_now(struct conn *c, int fd);

// worth_ended notes how long a connection went on that has ended.
void worth_ended(struct conn *c);

#endif
