// SPDX-License-Identifier: Apache-2.0
//
// How long to look before sleeping.
#ifndef SPIN_H
#define SPIN_H

#include <stdbool.h>
#include <stdint.h>

// A spin is what one waiter has learnt; several threads may. Zero is the beginning.
struct spin {
	_Atomic uint32_t shift; // halvings
	_Atomic uint32_t fails; // in a row
};

// spin_ns is how long to spin this time; 0: not at all.
uint64_t spin_ns(struct spin *s);
void spin_result(struct spin *s, bool found);

// spin_pass passes the time between two looks of a spin that began then, and says what
// time it is after that.
uint64_t spin_pass(uint64_t begun, uint64_t now);

// spin_near is called before the looks of who would not spin, since the peer last ran on
// our CPU: it lets the peer run. False: that is enough, the i-th time, or not wise.
bool spin_near(int i);

#endif
