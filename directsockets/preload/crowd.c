// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Four clients and their server on two CPUs: a client that sleeps is woken by the first
// answer, finds few, sends as many requests, and sleeps again. Each wake-up costs the
// server a system call and everybody a switch, and nothing is gained by the haste, since
// all CPUs have work without it. So who expects much and has to wait for a CPU does not
// ask to be woken at first, but sleeps for a moment and looks: the same answers come in
// larger portions. So many being under way, the mean time of an answer falls with what
// that saves.
//
// Where a CPU is free somebody might wait for us meanwhile. So it is done only if
//
//	there are MANY  connections that something may come from
//	it is crowded   in the last milliseconds a CROWDEDth of the time in which this thread
//	                could have run, it waited for a CPU (schedstat)
//	it is worth it  more than FEW come, so that wake-ups are saved; when they do not,
//	                PATIENT times in a row, it is tried after 1, 2, 4, … sleeps without
//	it is short     the kernel lets timers of this thread be late by SLACK at most
//
// Where there is no schedstat there is never a crowd.
#include "real.h"

#include "crowd.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#define SNOOZE_NS 30000u
#define SLACK_NS 60000 // by default 50 us
#define ASK_NS 5000000u
#define RARELY_NS 1000000000u
#define load(x) atomic_load_explicit(&(x), memory_order_relaxed)
#define store(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

enum { MANY = 8, CROWDED = 3, FEW = 3, PATIENT = 4, RAREST = 10 };

// times says how long this thread has run, and waited to.
static bool times(uint64_t *ran, uint64_t *waited)
{
	char s[64];
	int fd = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : real.read(fd, s, sizeof s - 1);
	if (fd >= 0)
		real.close(fd);
	s[n > 0 ? n : 0] = 0;
	unsigned long long r, w;
	if (sscanf(s, "%llu %llu", &r, &w) != 2)
		return false;
	*ran = r;
	*waited = w;
	return true;
}

static bool crowded(uint64_t now)
{
	static __thread struct {
		uint64_t due, ran, waited;
		bool yes;
	} last __attribute__((tls_model("initial-exec")));
	if (now < last.due)
		return last.yes;
	uint64_t ran, waited;
	last.yes = false;
	if (!times(&ran, &waited) || prctl(PR_GET_TIMERSLACK) > SLACK_NS) {
		last.due = now + RARELY_NS;
		return false;
	}
	last.yes = last.due && now - last.due < RARELY_NS && (waited - last.waited) * CROWDED > (waited - last.waited) + (ran - last.ran);
	last.ran = ran;
	last.waited = waited;
	last.due = now + ASK_NS;
	return last.yes;
}

uint64_t crowd_snooze(struct crowd *c, uint64_t now, int from)
{
	if (from < MANY || !crowded(now))
		return 0;
	uint32_t skip = load(c->skip);
	if (skip > 0) {
		store(c->skip, skip - 1);
		return 0;
	}
	return SNOOZE_NS;
}

void crowd_result(struct crowd *c, int found)
{
	if (found > FEW) {
		store(c->fails, 0);
		return;
	}
	uint32_t fails = load(c->fails);
	store(c->fails, fails + 1);
	if (fails >= PATIENT)
		store(c->skip, 1u << (fails - PATIENT < RAREST ? fails - PATIENT : RAREST));
}
