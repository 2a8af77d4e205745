// SPDX-License-Identifier: Apache-2.0
//
// Counters and locks where nobody else can be at them.
//
// A locked instruction waits for all that was stored before it, some 20 cycles, and a call
// of the program passes several. In a process of one thread none of them is needed for what
// no other process can reach: a single instruction that is not locked is whole for a signal handler
// too, which runs before or after it. What it counts is there for the threads and
// children that come later, as pthread_create and fork are passed in the same thread: but
// for a handler that forks between the look at `sole` and the instruction, whose child
// would have to count in just that instruction.
//
// The C library says when there is one thread (false may also mean that it does not know).
// `sole` below is that, and that no other process has, or ever had, what is counted.
#ifndef SINGLE_H
#define SINGLE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef EXTDS_STATIC
#include <sys/single_threaded.h>
#endif

#include "real.h"

#ifdef EXTDS_STATIC
static inline bool single_thread(void) { return __libc_single_threaded; }
#else
static inline bool single_thread(void) { return *real_single; }
#endif

static inline void single_inc(_Atomic uint32_t *p, bool sole)
{
#ifdef __x86_64__
	if (sole) {
		__asm__ volatile("addl $1, %0" : "+m"(*(uint32_t *)(uintptr_t)p) : : "cc", "memory");
		return;
	}
#else
	(void)sole;
#endif
	atomic_fetch_add(p, 1);
}

static inline void single_add64(_Atomic uint64_t *p, uint64_t n, bool sole)
{
#ifdef __x86_64__
	if (sole) {
		__asm__ volatile("addq %1, %0" : "+m"(*(uint64_t *)(uintptr_t)p) : "r"(n) : "cc", "memory");
		return;
	}
#else
	(void)sole;
#endif
	atomic_fetch_add(p, n);
}

// single_dec takes one off. True: nothing is left.
static inline bool single_dec(_Atomic uint32_t *p, bool sole)
{
#ifdef __x86_64__
	if (sole) {
		bool zero;
		__asm__ volatile("subl $1, %0" : "+m"(*(uint32_t *)(uintptr_t)p), "=@ccz"(zero) : : "memory");
		return zero;
	}
#else
	(void)sole;
#endif
	return atomic_fetch_sub(p, 1) == 1;
}

// single_drop is that where there may be nothing: in the child of a fork by a handler nothing is counted of the call
// that goes on.
static inline void single_drop(_Atomic uint32_t *p, bool sole)
{
	if (atomic_load_explicit(p, memory_order_relaxed) > 0)
		single_dec(p, sole);
}

#endif
