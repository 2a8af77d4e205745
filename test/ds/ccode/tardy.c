// SPDX-License-Identifier: Apache-2.0
//
// tardy.c goes into a library that is built with -finstrument-functions: when the first thread
// is about to take a connection back to TCP, it comes late, so that others close that
// connection meanwhile, and open another with the same number. With TARDY=arms all others come late
// when they are about to arm a doorbell, so that the channel ends meanwhile, and with TARDY=looks when
// they have looked into a set in a set, so that something comes for it; with TARDY=posts before they
// post what changes a direction, so that the other end does meanwhile.
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PLAIN __attribute__((no_instrument_function))

PLAIN void __cyg_profile_func_enter(void *function, void *caller);
PLAIN void __cyg_profile_func_exit(void *function, void *caller);

void conn_halt(void), conn_return(void), conn_rest(void), stream_halt(void), stream_back(void), stream_heed(void), doorbell_arm(void), epset_peek(void),
	lane_post(void); // called by nobody here

static const struct tardy {
	const char *name;
	void (*late[6])(void);
	int first, behind; // the first thread, or all others; where the function ends
} ways[] = {
	{"TARDY=arms", {doorbell_arm}, 0, 0},
	{"TARDY=looks", {epset_peek}, 0, 1},
	{"TARDY=posts", {lane_post}, 0, 0},
	{"", {conn_halt, conn_return, conn_rest, stream_halt, stream_back, stream_heed}, 1, 0},
};

PLAIN static const struct tardy *way(void)
{
	static const struct tardy *found;
	if (found)
		return found;
	const struct tardy *w = ways;
	for (; *w->name; w++)
		for (char **e = environ; e && *e; e++)
			if (!strcmp(*e, w->name))
				return found = w;
	return environ ? found = w : w;
}

PLAIN static void delay(void *function, int behind)
{
	const struct tardy *w = way();
	for (unsigned i = 0; i < sizeof w->late / sizeof *w->late; i++) {
		if (function != (void *)w->late[i] || (gettid() == getpid()) != w->first || behind != w->behind)
			continue;
		int saved = errno;
		nanosleep(&(struct timespec){0, 1000000}, NULL);
		errno = saved;
	}
}

void __cyg_profile_func_enter(void *function, void *caller) { (void)caller, delay(function, 0); }
void __cyg_profile_func_exit(void *function, void *caller) { (void)caller, delay(function, 1); }
