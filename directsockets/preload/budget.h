// SPDX-License-Identifier: Apache-2.0
//
// How much memory channels may take of a process that has limits of its own.
#ifndef BUDGET_H
#define BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

// budget_map: may this process map so many bytes more? If so they are counted
// until budget_unmap.
bool budget_map(uint64_t size);
void budget_unmap(uint64_t size);

// budget_lane counts the slots of a lane that a channel uses for the first time, and
// budget_window so many bytes of its windows; growth: of one that is in use. False:
// they may not be touched.
bool budget_lane(struct channel *ch, uint32_t lane);
bool budget_window(struct lane_pool *p, uint64_t more, bool growth);

// budget_whole counts a file that is touched as a whole when it is made, until its channel ends.
bool budget_whole(struct lane_pool *p, uint64_t size);

#endif
