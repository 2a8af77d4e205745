// SPDX-License-Identifier: Apache-2.0
//
// Offers: how two ends of a connection find each other in the fabric directory.
#ifndef OFFER_H
#define OFFER_H

#include <stdbool.h>
#include <stdint.h>

#include "conn.h"

// offer_make publishes an offer that leads to the process' listener; false with errno.
bool offer_make(struct conn *c, const char *listener);
void offer_remove(struct conn *c);

// offer_refuse tells the other end, where that looks for an offer, why there will be none. It
// stays until that end has read it or this one closes.
void offer_refuse(struct conn *c, enum reason why);

// offer_look finds the offer of the other end: the peer's listener and inode. If that end refuses
// instead, *no is why, else REASON_NONE.
bool offer_look(struct conn *c, char peer[64], uint64_t *ino, enum reason *no);

#endif
