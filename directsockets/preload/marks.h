// SPDX-License-Identifier: Apache-2.0
//
// Which of thousands of members has something new.
#ifndef MARKS_H
#define MARKS_H

#include "member.h"

// All with the set's lock.

// marks_gather makes those hot again that may have something new.
void marks_gather(struct epset *e);

// marks_chill looks at some hot members, and asks the peers of quiet ones for marks
// instead of looking at them. For sets with many hot members.
void marks_chill(struct epset *e);

// marks_heat makes a member hot, marks_forget takes it out before it is freed, and
// marks_clear makes all hot and asks for nothing, in a child or at the end.
void marks_heat(struct epset *e, struct member *m);
void marks_forget(struct epset *e, struct member *m);
void marks_clear(struct epset *e);

#endif
