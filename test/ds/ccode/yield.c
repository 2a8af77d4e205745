// Says when the library gives the CPU away between two looks (spin.c), and when it stops
// doing so, since that took long: sched_yield is one of our own.
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

#include "../../../directsockets/preload/clock.h"
#include "../../../directsockets/preload/config.h"
#include "../../../directsockets/preload/spin.h"

#define MS 1000000u

static uint64_t takes; // each yield, in ns
static int yields;

int sched_yield(void)
{
	yields++;
	for (uint64_t end = clock_ns() + takes; clock_ns() < end;)
		;
	return 0;
}

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static bool passes(uint64_t into)
{
	int before = yields;
	uint64_t now = clock_ns();
	spin_pass(now - into, now);
	return yields > before;
}

// pause_ms is how long there is no yield after one that took 2 ms.
static double pause_ms(void)
{
	takes = 2 * MS;
	check(spin_near(0), "does not yield");
	takes = 0;
	uint64_t begin = clock_ns();
	check(!spin_near(0) && !passes(MS), "yields right after a long one");
	while (!spin_near(0))
		;
	return (double)(clock_ns() - begin) / MS;
}

int main(void)
{
	config.spin_ns = 50000;
	check(!passes(0), "yields at once");
	check(passes(MS), "never yields");
	check(spin_near(0) && spin_near(1) && !spin_near(2), "does not yield twice to who is near");
	for (int i = 0; i < 64; i++)
		check(spin_near(0), "stops for short ones");
	for (int least = 63; least < 500; least *= 2) {
		double ms = pause_ms();
		fprintf(stderr, "%.0f ms\n", ms);
		check(ms >= least, "yields again too soon");
	}
	bool forgets = false;
	for (int tries = 0; tries < 5 && !forgets; tries++) { // another program may make it longer
		for (int i = 0; i < 64; i++)
			spin_near(0);
		forgets = pause_ms() < 250;
	}
	check(forgets, "short ones change nothing");
	config.spin_ns = 0;
	check(!spin_near(0), "yields though it must not spin");
	return 0;
}
