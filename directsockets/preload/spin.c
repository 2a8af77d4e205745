// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// The peer usually answers in less time than a wake-up takes, so a waiter looks
// for a while before it sleeps: EXN_DS_SPIN_US at first, half after each time
// that it was for nothing, all of it again after a success and at every 32nd try.
//
// Spinning takes CPU time from somebody. It is free only if nobody else wants
// the CPU, so there is none
//
//	on a machine with one CPU         the peer could not run; likewise when it last ran
//	                                  on ours, which the callers ask (channel_near). To
//	                                  be pinned to one says nothing: the peer may be on
//	                                  another
//	with a quota below two CPUs       what is spun away is missing later: the cgroup is
//	                                  throttled, for tens of milliseconds
//	while the cgroup is throttled     for a second after nr_throttled has grown, with
//	                                  whatever quota; asked after each 64 spins for nothing
#include "real.h"

#include "spin.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"

enum { ASK_EVERY = 64, RETRY_EVERY = 32, SHORTEST = 1000 };
#define PAUSE_NS 1000000000u

static _Atomic uint32_t wasted;
static _Atomic uint64_t throttled = ~0ull; // the last count seen
static _Atomic uint64_t paused_until;

// text reads a small file of the cgroup, or of one of its parents.
static bool text(const char *group, const char *name, char *to, size_t n)
{
	char path[512];
	snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", group, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : real.read(fd, to, n - 1);
	if (fd >= 0)
		real.close(fd);
	to[got > 0 ? got : 0] = 0;
	return got > 0;
}

// group is the path of our cgroup (version 2), "" for the topmost.
static void group(char *to, size_t n)
{
	char all[1024];
	int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : real.read(fd, all, sizeof all - 1);
	if (fd >= 0)
		real.close(fd);
	all[got > 0 ? got : 0] = 0;
	char *line = strstr(all, "0::/");
	snprintf(to, n, "%.*s", line ? (int)strcspn(line + 3, "\n") : 0, line ? line + 3 : "");
	if (!strcmp(to, "/"))
		to[0] = 0;
}

// scarce: less than two CPUs are ours.
static bool scarce(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return true;
	char path[256], max[64];
	group(path, sizeof path);
	for (;;) {
		unsigned long quota, period;
		if (text(path, "cpu.max", max, sizeof max) && sscanf(max, "%lu %lu", &quota, &period) == 2 && quota < 2 * period)
			return true;
		char *slash = strrchr(path, '/');
		if (!slash)
			return false;
		*slash = 0;
	}
}

// throttling: the count of periods in which the cgroup had to wait has grown.
static bool throttling(void)
{
	char path[256], stat[1024];
	group(path, sizeof path);
	char *at = text(path, "cpu.stat", stat, sizeof stat) ? strstr(stat, "nr_throttled ") : NULL;
	if (!at)
		return false;
	uint64_t now = strtoull(at + strlen("nr_throttled "), NULL, 10), was = atomic_exchange(&throttled, now);
	return was != ~0ull && now > was;
}

// longest is EXN_DS_SPIN_US, unless we should not spin at all.
static uint64_t longest(void)
{
	static _Atomic int verdict; // 1 spin, 2 do not; the answer costs some system calls
	if (!atomic_load_explicit(&verdict, memory_order_relaxed))
		atomic_store(&verdict, scarce() ? 2 : 1);
	return atomic_load_explicit(&verdict, memory_order_relaxed) == 1 ? config.spin_ns : 0;
}

#define load(x) atomic_load_explicit(&(x), memory_order_relaxed)
#define store(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

uint64_t spin_ns(struct spin *s)
{
	uint64_t most = longest();
	uint32_t fails = load(s->fails);
	if (fails % RETRY_EVERY == 0)
		store(s->shift, 0);
	uint32_t shift = load(s->shift);
	uint64_t ns = shift < 32 ? most >> shift : 0;
	if (ns < SHORTEST) {
		store(s->fails, fails + 1); // so that the next RETRY_EVERYth is tried
		return 0;
	}
	uint64_t until = load(paused_until);
	if (until) {
		if (clock_ns() < until)
			return 0;
		store(paused_until, 0);
	}
	return ns;
}

void spin_result(struct spin *s, bool found)
{
	if (found) {
		store(s->shift, 0);
		store(s->fails, 0);
		return;
	}
	store(s->shift, load(s->shift) + 1);
	store(s->fails, load(s->fails) + 1);
	if (atomic_fetch_add_explicit(&wasted, 1, memory_order_relaxed) % ASK_EVERY == ASK_EVERY - 1 && throttling())
		store(paused_until, clock_ns() + PAUSE_NS);
}
