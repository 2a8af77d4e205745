// SPDX-License-Identifier: Apache-2.0
//
// Hints, without a system call: whether a peer may have the library, and whether
// connections to a port were worth a lane.
#ifndef BOARD_H
#define BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

// board_meet notes that a busy connection of this process was made to (active) or
// accepted at this port, and says whether somebody noted the other of the two of
// late. True also where nobody can know.
bool board_meet(uint16_t port, bool active);

// board_met is board_meet that is true only where somebody has noted it.
bool board_met(uint16_t port, bool active);

// board_translated: somebody may tell of connections whose ends know different addresses (home.h). Also
// where nobody can know.
bool board_translated(void);

// board_brief is a counter for connections to this port, which belongs to worth.c.
// Processes share it where there is a board.
_Atomic uint32_t *board_brief(uint16_t port);

// board_open opens the board of the open fabric directory; without one every answer
// is true. board_close forgets it.
void board_open(void);
void board_close(void);

#endif
