// SPDX-License-Identifier: Apache-2.0
//
// The subdirectory "ds" of the fabric directory, in which processes find each
// other. rendezvous.c says what lies in it.
#ifndef DIRECTORY_H
#define DIRECTORY_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

enum {
	DIRECTORY_NAME = 64,   // bytes of a listener's name, the end included
	DIRECTORY_OFFER_S = 2, // an offer this old has expired
};

extern int directory; // its descriptor, -1 while it is not open

// directory_open makes it and opens it, once. False: there is none that can be
// trusted.
bool directory_open(void);

// directory_permitted: directory_open would succeed, for all that can be said without making anything.
bool directory_permitted(void);

void directory_close(void);

// directory_address is where a listener of that name is made.
socklen_t directory_address(struct sockaddr_un *a, const char *name);

// directory_connect connects a socket to the listener of that name, if it is one of our user's, or of
// anybody's where the directory is a group's. It is asked whose it is before: who accepts may have
// queued descriptors at once.
int directory_connect(int s, const char *name);

// directory_remove removes what has that name if it is of this type and our user's.
bool directory_remove(const char *name, mode_t type);

// directory_age is how old what lies in a directory is, in seconds; INT64_MAX: it is gone.
int64_t directory_age(int in, const char *name);

// directory_sweep removes what crashed processes left: listeners nobody listens on
// and expired offers and refusals.
void directory_sweep(void);

#endif
