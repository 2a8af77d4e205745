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

#endif
