// SPDX-License-Identifier: Apache-2.0
//
// Whether more want the CPUs than there are.
#ifndef CROWD_H
#define CROWD_H

#include <stdbool.h>
#include <stdint.h>

// A snooze is a short sleep after which one looks, without having asked to be woken.
// A struct crowd is what a waiter has learnt of them; several threads may. Zero is the
// beginning.
struct crowd {
	_Atomic uint32_t skip;  // sleeps before it is tried again
	_Atomic uint32_t fails; // in a row
};

// crowd_snooze is how many ns to snooze at the time now, while something may come from
// so many connections; 0: not at all. crowd_result says how many events it brought.
uint64_t crowd_snooze(struct crowd *c, uint64_t now, int from);
void crowd_result(struct crowd *c, int found);

#endif
