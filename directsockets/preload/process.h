// SPDX-License-Identifier: Apache-2.0
//
// Beginning and end of a process: load, fork, exec, exit.
#ifndef PROCESS_H
#define PROCESS_H

#include <stdbool.h>
#include <stdint.h>

#include "family.h"

// process_id tells the processes of a family apart without a system call: what
// was remembered under another one is another process' state.
uint32_t process_id(void);

// A word that the kernel clears in every child, whatever call made it.
extern const volatile uint32_t *process_alive;
static inline bool process_ready(void) { return process_alive && *process_alive; }

// process_borrowed: we are the child of a vfork, and all memory is the parent's. What is kept
// there about the process stays as it is.
bool process_borrowed(void);

// process_leaving: the process ends, and its descriptors stay what they are until it has.
extern _Atomic bool process_leaving;

// process_begin is safe to call at any time, any number of times.
void process_begin(void);

// process_confine takes this library out of the program, which is about to have the kernel kill it
// for system calls that are not its own, or to have more than one table of descriptors.
void process_confine(enum reason why);

// process_leave takes all connections back to TCP, and keeps those to come there.
void process_leave(enum reason why);

// process_conns calls f for each of the program's descriptors of connections;
// first tells one of several of the same.
void process_conns(void (*f)(struct conn *c, int fd, bool first));

// A child about to run another program has references that exec will close:
// process_inherit counts one, process_disinherit gives it back.
void process_inherit(struct conn *c, int fd, bool first);
void process_disinherit(struct conn *c, int fd, bool first);

#endif
