// SPDX-License-Identifier: Apache-2.0
//
// What an administrator has decided about programs and connections.
#ifndef POLICY_H
#define POLICY_H

#include <stdbool.h>

#include "family.h"

// policy_init reads the rules for this program.
void policy_init(const char *text);

// policy_setting is the value of a setting for this program, or NULL.
const char *policy_setting(const char *name);

// policy_upgrades: may this connection take lanes? It has its tuple.
bool policy_upgrades(const struct conn *c);

#endif
