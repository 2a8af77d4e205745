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

// budget_lane counts the memory of a lane that a channel uses for the first time.
// False: it may not be touched.
bool budget_lane(struct channel *ch, uint32_t lane);
void budget_lanes_end(struct channel *ch); // the channel is freed

#endif
