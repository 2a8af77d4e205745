// SPDX-License-Identifier: Apache-2.0
//
// delays.c goes into a library that is built with -finstrument-functions: each function,
// where it begins and where it ends, now and then lets others run, spins, or sleeps for up
// to 0.4 ms. So orders of events come about in seconds that a busy machine brings once a day.
#include <errno.h>
#include <sched.h>
#include <stdint.h>
#include <time.h>

#define PLAIN __attribute__((no_instrument_function))

PLAIN void __cyg_profile_func_enter(void *function, void *caller);
PLAIN void __cyg_profile_func_exit(void *function, void *caller);

static __thread uint64_t x __attribute__((tls_model("initial-exec")));

PLAIN static void delay(void)
{
	int saved = errno;
	struct timespec t;
	if (!x) {
		clock_gettime(CLOCK_MONOTONIC, &t);
		x = ((uint64_t)t.tv_nsec * 2654435761u ^ (uintptr_t)&x) | 1;
	}
	x ^= x << 13; // xorshift
	x ^= x >> 7;
	x ^= x << 17;
	uint32_t span = x >> 32;
	switch (x % 512) {
	case 0:
		t = (struct timespec){0, span % 400000};
		nanosleep(&t, NULL);
		break;
	case 1: case 2: case 3: case 4:
		sched_yield();
		break;
	case 5: case 6: case 7: case 8: case 9: case 10: case 11: case 12:
		for (volatile uint32_t i = span % 3000; i > 0; i--)
			;
	}
	errno = saved;
}

void __cyg_profile_func_enter(void *function, void *caller) { (void)function, (void)caller, delay(); }
void __cyg_profile_func_exit(void *function, void *caller) { (void)function, (void)caller, delay(); }
