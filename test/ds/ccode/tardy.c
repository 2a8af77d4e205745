// SPDX-License-Identifier: Apache-2.0
//
// tardy.c goes into a library that is built with -finstrument-functions: when the first thread
// is about to take a connection back to TCP, it comes late, so that others close that
// connection meanwhile, and open another with the same number. With TARDY_ARMS all others come late
// when they are about to arm a doorbell, so that the channel ends meanwhile, and with TARDY_LOOKS when
// they have looked into a set in a set, so that something comes for it.
#define _GNU_SOURCE
#include <errno.h>
#include <time.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))

PLAIN void __cyg_profile_func_enter(void *function, void *caller);
PLAIN void __cyg_profile_func_exit(void *function, void *caller);

void conn_halt(void), conn_return(void), stream_halt(void), stream_back(void), stream_heed(void), doorbell_arm(void), epset_peek(void); // called by nobody here

#ifdef TARDY_ARMS
static void (*const late[])(void) = {doorbell_arm};
enum { FIRST = 0, BEHIND = 0 };
#elif defined TARDY_LOOKS
static void (*const late[])(void) = {epset_peek};
enum { FIRST = 0, BEHIND = 1 };
#else
static void (*const late[])(void) = {conn_halt, conn_return, stream_halt, stream_back, stream_heed};
enum { FIRST = 1, BEHIND = 0 };
#endif

PLAIN static void delay(void *function, int behind)
{
	for (unsigned i = 0; i < sizeof late / sizeof *late; i++) {
		if (function != (void *)late[i] || (gettid() == getpid()) != FIRST || behind != BEHIND)
			continue;
		int saved = errno;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
		errno = saved;
	}
}

void __cyg_profile_func_enter(void *function, void *caller) { (void)caller, delay(function, 0); }
void __cyg_profile_func_exit(void *function, void *caller) { (void)caller, delay(function, 1); }
