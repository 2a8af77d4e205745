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

// clock_left is what is left of a wait's time after so much of it, or since begun; no more than 0: no end, or no wait.
static inline int64_t clock_less(int64_t timeout, uint64_t took)
{
	return timeout <= 0 ? timeout : took < (uint64_t)timeout ? timeout - (int64_t)took : 0;
}
static inline int64_t clock_left(int64_t timeout, uint64_t begun)
{
	return timeout <= 0 ? timeout : clock_less(timeout, clock_ns() - begun);
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

// clock_since is how many ns ago clock_ticks said so, by how both have gone on since the library began. For
// waits that mostly need no time: the ticks are a few instructions, the clock is pages of its own.
struct clock_both {
	uint64_t ns, ticks;
};
extern struct clock_both clock_origin;
static inline uint64_t clock_since(uint64_t ticks)
{
	struct clock_both now = {clock_ns(), clock_ticks()};
	if (now.ticks <= ticks || ticks < clock_origin.ticks) // it has been set back
		return 0;
	return (uint64_t)((double)(now.ticks - ticks) * ((double)(now.ns - clock_origin.ns) / (double)(now.ticks - clock_origin.ticks)));
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
