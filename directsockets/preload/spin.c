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
//	                                  throttled, for tens of milliseconds. Of our cgroup and
//	                                  those above it the tightest counts; asked each second,
//	                                  since quotas are changed while programs run
//	while a cgroup is throttled       for a second after nr_throttled has grown, with
//	                                  whatever quota; asked after each 64 spins for nothing.
//	                                  A cgroup counts there what its own quota did only, so
//	                                  those above it are asked, too
//
// In a cgroup namespace, as containers have, what is above its root is not seen.
//
// Who has looked for ALONE_NS yields the CPU between the looks that follow. Where there
// are more who look than CPUs, as with a server's processes for a connection each, the
// one that we wait for may be waiting for our CPU; and it need not wake us then. Where nobody
// wants it a yield only delays the next look: after each that came back at once it is twice
// as long until the next first one, up to MOST_ALONE_NS. For the
// same reason a peer that last ran on our CPU is given it NEAR times before we sleep.
// Another program that computes has the CPU for milliseconds after a yield. So none
// follows one that was LONG_NS long until 32 times as much has passed, and 64, 128, …
// times after the next ones, unless SOME shorter ones were between.
#include "real.h"

#include "spin.h"

#include <errno.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "clock.h"
#include "config.h"

enum { ASK_EVERY = 64, RETRY_EVERY = 32, SHORTEST = 1000, NEAR = 2, SOME = 64, MOST_LONGS = 6, PATH = 1024 }; // threads may have stacks of 16 KiB
#define ALONE_NS 2000u
#define MOST_ALONE_NS 10000u
#define LONG_NS 1000000u
#define PAUSE_NS 1000000000u
#define QUOTA_NS 1000000000u

static _Atomic uint32_t wasted;
static _Atomic uint64_t throttled = ~0ull; // the last count seen
static _Atomic uint64_t paused_until;

#define TOP "/sys/fs/cgroup"

// text reads a small file of a cgroup. errno stays: whose call this is may succeed.
// What it has on the stack is not to add to what its callers have there.
__attribute__((noinline)) static bool text(const char *group, const char *name, char *to, size_t n)
{
	char path[PATH + 32];
	int saved = errno;
	snprintf(path, sizeof path, "%s/%s", group, name);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t got = fd < 0 ? -1 : real.read(fd, to, n - 1);
	if (fd >= 0)
		real.close(fd);
	to[got > 0 ? got : 0] = 0;
	errno = saved;
	return got > 0;
}

// group is the directory of our cgroup with the controller of CPU time: that of version 1 if
// that has it ("4:cpu,cpuacct:/a/b"), else of version 2 ("0::/a/b"). A container may have its own
// as the root of what is mounted and still be told the path outside, which leads nowhere then.
static void group(char *to)
{
	char all[PATH], some[64], *end;
	int saved = errno, fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);
	bool first = false;
	ssize_t got;
	snprintf(to, PATH, TOP);
	for (size_t have = 0; fd >= 0 && !first && (got = real.read(fd, all + have, sizeof all - 1 - have)) > 0;) {
		char *line = all;
		all[have += (size_t)got] = 0;
		for (; !first && (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;
			if (!path)
				continue;
			*path++ = 0;
			first = (!strcmp(kind + 1, "cpu") || !strncmp(kind + 1, "cpu,", 4)) && text(TOP "/cpu", "cpu.stat", some, sizeof some);
			if (first || !kind[1])
				snprintf(to, PATH, TOP "%s%s", first ? "/cpu" : "", path);
		}
		memmove(all, line, have = strlen(line));
	}
	if (fd >= 0)
		real.close(fd);
	errno = saved;
	for (size_t n = strlen(to); n > 0 && to[n - 1] == '/'; n--)
		to[n - 1] = 0;
}

// above goes to the cgroup above, if there is one.
static bool above(char *path)
{
	*strrchr(path, '/') = 0;
	return strlen(path) >= strlen(TOP);
}

// quota says how much CPU time a cgroup has in how much time.
static bool quota(const char *group, unsigned long *of, unsigned long *each)
{
	char first[64], second[64];
	if (text(group, "cpu.max", first, sizeof first))
		return sscanf(first, "%lu %lu", of, each) == 2; // not of "max 100000"
	return text(group, "cpu.cfs_quota_us", first, sizeof first) && text(group, "cpu.cfs_period_us", second, sizeof second) &&
	       first[0] != '-' && sscanf(first, "%lu", of) == 1 && sscanf(second, "%lu", each) == 1; // -1: none
}

// scarce: less than two CPUs are ours.
static bool scarce(void)
{
	if (sysconf(_SC_NPROCESSORS_ONLN) < 2)
		return true;
	char path[PATH];
	unsigned long of, each;
	group(path);
	do
		if (quota(path, &of, &each) && of < 2 * each)
			return true;
	while (above(path));
	return false;
}

// throttling: the count of periods in which a cgroup of ours had to wait has grown.
static bool throttling(void)
{
	char path[PATH], stat[1024];
	uint64_t now = 0;
	group(path);
	do {
		char *at = text(path, "cpu.stat", stat, sizeof stat) ? strstr(stat, "nr_throttled ") : NULL;
		if (at)
			now += strtoull(at + strlen("nr_throttled "), NULL, 10);
	} while (above(path));
	uint64_t was = atomic_exchange(&throttled, now);
	return was != ~0ull && now > was;
}

#define load(x) atomic_load_explicit(&(x), memory_order_relaxed)
#define store(x, v) atomic_store_explicit(&(x), v, memory_order_relaxed)

// longest is EXN_DS_SPIN_US, unless we should not spin at all.
static uint64_t longest(void)
{
	static _Atomic uint64_t due; // when to ask again; the answer costs some system calls
	static _Atomic bool none;
	if (!config.spin_ns)
		return 0;
	uint64_t now = clock_ns(), at = load(due);
	if (now >= at && atomic_compare_exchange_strong(&due, &at, now + QUOTA_NS))
		store(none, scarce());
	return load(none) ? 0 : config.spin_ns;
}

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

// Of all threads: what one had to wait for, others would have.
static _Atomic uint64_t alone_until;
static _Atomic uint32_t longs, shorts; // the latter since the last long one
static _Atomic uint64_t alone = ALONE_NS, shortest = ~0ull; // of all yields

static uint64_t yield(uint64_t now)
{
	sched_yield();
	uint64_t then = clock_ns(), took = then - now;
	if (took < load(shortest))
		store(shortest, took);
	uint64_t ns = took > 2 * load(shortest) ? ALONE_NS : 2 * load(alone);
	store(alone, ns < MOST_ALONE_NS ? ns : MOST_ALONE_NS);
	if (took < LONG_NS) {
		store(shorts, load(shorts) + 1);
		return then;
	}
	uint32_t n = load(shorts) < SOME ? load(longs) : 0;
	store(alone_until, then + (took << (5 + n)));
	store(longs, n < MOST_LONGS ? n + 1 : n);
	store(shorts, 0);
	return then;
}

uint64_t spin_pass(uint64_t begun, uint64_t now)
{
	if (now - begun >= load(alone) && now >= load(alone_until))
		return yield(now);
	clock_pause();
	return clock_ns();
}

bool spin_near(int i)
{
	if (i >= NEAR || !config.spin_ns)
		return false;
	uint64_t now = clock_ns();
	if (now < load(alone_until))
		return false;
	yield(now);
	return true;
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
