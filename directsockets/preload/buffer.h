// SPDX-License-Identifier: Apache-2.0
//
// Registered buffers: memory of the program in the memory file of a channel.
#ifndef BUFFER_H
#define BUFFER_H

#include <stdbool.h>
#include <stdint.h>

// buffer_keep: buffers of this process lie in the file that is mapped at base, which it
// needs no more otherwise; the last of them unmaps it. False: none does.
bool buffer_keep(const void *base);

// buffer_fork makes a child to be an owner of all buffers of the process; buffer_forked
// ends that, after there was a child or not. buffer_child is called in it; a cloned one counts itself.
void buffer_fork(void);
void buffer_forked(bool child);
void buffer_child(bool cloned);

// buffer_leave gives up those that other processes have too, before a program takes our
// place, and buffer_stay takes them again if it did not. buffer_exit gives up all.
void buffer_leave(void);
void buffer_stay(void);
void buffer_exit(void);

#endif
