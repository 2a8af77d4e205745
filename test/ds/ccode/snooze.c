// Says when the library would snooze (crowd.c), in a crowd of its own on one CPU.
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "../../../directsockets/preload/clock.h"
#include "../../../directsockets/preload/crowd.h"

#define MS 1000000u
#define PATIENCE (3000u * MS)
#define SURE (3u * MS) // whether it is crowded is not asked again so soon

static void check(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "%s\n", what);
	exit(1);
}

static bool snoozes(struct crowd *c, int from) { return crowd_snooze(c, clock_ns(), from) > 0; }

// ever: within some time it snoozes.
static bool ever(int from, uint64_t patience)
{
	struct crowd c = {0};
	for (uint64_t end = clock_ns() + patience; clock_ns() < end;)
		if (snoozes(&c, from))
			return true;
	return false;
}

// mostly: more often than not.
static bool mostly(int from, uint64_t time)
{
	struct crowd c = {0};
	long balance = 0;
	for (uint64_t end = clock_ns() + time; clock_ns() < end;)
		balance += snoozes(&c, from) ? 1 : -1;
	return balance > 0;
}

// backs_off goes through all that can come of snoozes. False: it took so long that the
// crowd may have gone.
static bool backs_off(void)
{
	struct crowd c = {0};
	check(ever(8, PATIENCE), "does not snooze in a crowd");
	uint64_t begin = clock_ns();
	int none = 0;
	for (int i = 0; i < 4; i++) {
		crowd_result(&c, i);
		none += !snoozes(&c, 8);
	}
	bool patient = none == 0, doubles = true;
	for (int times = 1; times <= 1024; times *= 2) {
		crowd_result(&c, 0);
		for (none = 0; none <= 1024 && !snoozes(&c, 8); none++)
			;
		doubles &= none == times;
	}
	crowd_result(&c, -1); // a signal
	for (none = 0; none <= 1024 && !snoozes(&c, 8); none++)
		;
	doubles &= none == 1024;
	crowd_result(&c, 4);
	bool again = snoozes(&c, 8);
	crowd_result(&c, 3);
	again &= snoozes(&c, 8);
	if (clock_ns() - begin > SURE)
		return false;
	check(patient, "does not try a few times");
	check(doubles, "does not wait for twice as many sleeps each time, up to 1024");
	check(again, "has not forgotten what was before");
	return true;
}

int main(void)
{
	enum { OTHERS = 3, TRIES = 1000 };
	cpu_set_t one;
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	check(sched_setaffinity(0, sizeof one, &one) == 0, "cannot be on one CPU");
	for (int i = 0; i < OTHERS; i++) {
		if (fork() > 0)
			continue;
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		for (;;)
			;
	}
	int tries = 0;
	while (!backs_off())
		check(++tries < TRIES, "never runs for some ms");
	check(!ever(7, 200 * MS), "snoozes for seven");
	struct sched_param first = {1}, other = {0};
	if (sched_setscheduler(0, SCHED_FIFO, &first) == 0) {
		check(!mostly(8, 300 * MS), "snoozes though it hardly waits for a CPU"); // the kernel lets others run, too
		check(sched_setscheduler(0, SCHED_OTHER, &other) == 0, "remains first");
		puts("did not wait");
	}
	check(ever(8, PATIENCE), "does not snooze any more");
	prctl(PR_SET_TIMERSLACK, 1000000ul);
	mostly(8, 20 * MS); // it knew the slack before
	check(!ever(8, 200 * MS), "snoozes though timers are late");
	return 0;
}
