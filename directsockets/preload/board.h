// SPDX-License-Identifier: Apache-2.0
//
// A hint, without a system call, whether a peer may have the library.
#ifndef BOARD_H
#define BOARD_H

#include <stdbool.h>
#include <stdint.h>

// board_meet notes that a busy connection of this process was made to (active) or
// accepted at this port, and says whether somebody noted the other of the two of
// late. True also where nobody can know.
bool board_meet(uint16_t port, bool active);

// board_open opens the board of the open fabric directory; without one every answer
// is true. board_close forgets it.
void board_open(void);
void board_close(void);

#endif
