// SPDX-License-Identifier: Apache-2.0
//
// Who holds the other end of a connection, for words.
#ifndef FAR_H
#define FAR_H

#include "family.h"

enum far {
	FAR_UNKNOWN,  // nobody whom we may look at
	FAR_PLAIN,    // a program without the library
	FAR_LIBRARY,  // one that has it
	FAR_STRANGER, // another user's, who cannot use our fabric directory
};

// far_look looks at all processes, which takes milliseconds: only where EXN_DS_VERBOSE or
// EXN_DS_REQUIRE wants to know. tuple_know was called before. One thread at a time.
enum far far_look(const struct conn *c, int fd);

// far_words says in words what the last look of this process has found, for REASON_PLAIN.
extern char far_words[160];

// far_never: it is known that no peer with the library comes; *why is the reason then.
bool far_never(const struct conn *c, int fd, enum reason *why);

// far_missing is why no peer has come for a while, which it says if EXN_DS_VERBOSE is set.
enum reason far_missing(struct conn *c, int fd);

// far_program reads the name of a program; to has 16 bytes.
void far_program(char *to, uint32_t pid);

#endif
