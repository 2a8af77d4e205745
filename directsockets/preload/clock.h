// SPDX-License-Identifier: Apache-2.0
#ifndef CLOCK_H
#define CLOCK_H

#include <stdint.h>
#include <sys/syscall.h>
#include <time.h>

#include "real.h"

// clock_ns is monotonic time.
static inline uint64_t clock_ns(void)
{
	struct timespec t;
	real_clock(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// clock_wall is the time that file systems stamp with, in seconds.
static inline time_t clock_wall(void)
{
	struct timespec t;
	real_clock(CLOCK_REALTIME_COARSE, &t);
	return t.tv_sec;
}

// clock_ticks is cheap and roughly steady: the cycle counter where there is one. In
// ASK_TICKS pass some 50 us; with that period a quiet peer is looked after. Of whom
// poll or epoll told bytes, not before TOLD_TICKS more (stream_told).
#define ASK_TICKS (1u << 17)
#define TOLD_TICKS (1u << 20)
static inline uint64_t clock_ticks(void)
{
#if defined(__x86_64__) || defined(__i386__)
	return __builtin_ia32_rdtsc();
#else
	return clock_ns();
#endif
}

// clock_nap sleeps for a moment. No thread is cancelled in it, as in a sleep of the C library.
static inline void clock_nap(void)
{
	static const struct timespec moment = {0, 50000};
	real.syscall(SYS_nanosleep, &moment, NULL);
}

static inline void clock_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile("yield");
#endif
}

#endif
