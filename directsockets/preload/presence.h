// SPDX-License-Identifier: Apache-2.0
//
// By what others find this process: the fabric directory, the board, a listener there.
// One thread at a time (rendezvous.c).
#ifndef PRESENCE_H
#define PRESENCE_H

#include <stdbool.h>

#include "directory.h"

extern int presence_listener; // -1: none
extern char presence_name[DIRECTORY_NAME]; // of the listener

bool presence_prepared(void); // there is a directory
bool presence_ready(void);    // this process can be found

// presence_retire takes the listener back, presence_forget all. The next connection makes it anew.
void presence_retire(void);
void presence_forget(void);
void presence_child(void); // after fork: what we inherited is the parent's

#endif
