// SPDX-License-Identifier: Apache-2.0
//
// The environment of the library, in one place.
//
//	EXN_DS=off            do nothing at all
//	EXN_FABRIC=DIR        the fabric directory; default /run/exn for root,
//	                      else $XDG_RUNTIME_DIR/exn, else exn-UID in $TMPDIR or /tmp
//	EXN_DS_CALLS=8        upgrade a connection after so many calls on it ...
//	EXN_DS_BYTES=16384    ... or so many bytes, whichever comes first. With neither set,
//	                      after 64 or 4 MiB at ports where most were short (worth.c)
//	EXN_DS_SPIN_US=50     look so long before sleeping; 0 never spins
//	EXN_DS_SLOTS=64       VELO slots per lane, a power of two, 16 to 1024
//	EXN_DS_WINDOW=262144  most bytes of a PUT window, a power of two, 16 KiB to 16 MiB
//	EXN_DS_WINDOW_LEAST=65536  what a connection gets of one at first, likewise
//	EXN_DS_WINDOWS=1024   windows of a channel, which its connections share, 1 to 4096
//	EXN_DS_LANES=4096     connections per channel, 2 to 4096
//	EXN_DS_VELO_MAX=480   writes up to this size go by VELO slots, 0 to 4096
//	EXN_DS_HOT=128        an epoll set with more lanes asks for marks (marks.c)
//	EXN_DS_ZCOPY=off      or BYTES: copy once, from memory to memory, in calls of at
//	                      least so many bytes (zcopy.c)
//	EXN_DS_BUFFER=262144  what is copied once out of a registered buffer is at least so
//	                      many bytes (exnet.h); to sleep for it costs more for less
//	EXN_DS_STUCK_MS=100   a reader that takes nothing from a full lane for so long gets the
//	                      rest by TCP, which holds more (transmit.c); 0: never
//	EXN_DS_SUBNETS=LIST   upgrade also between different addresses of these subnets,
//	                      such as 10.0.0.0/8,fd00::/8; at most 16 (tuple.h)
//	EXN_DS_MEMORY=BYTES   lanes may take so much memory; default: an eighth of
//	                      what cgroup and machine have (budget.c)
//	EXN_DS_POLICY=RULES   of a policy file, for all programs (policy.c); what the
//	                      environment sets itself wins
//	EXN_DS_VERBOSE=1      say on stderr what happens to connections
//	EXN_DS_REQUIRE=1      a connection that cannot leave TCP is refused
//
// For tests only:
//
//	EXN_DS_TEST_SWITCH=K     go back to TCP, at random, one in K writes
//	EXN_DS_TEST_SEED=S       the seed of that
//	EXN_DS_TEST_NOCONSENT=1  never consent to receive on a lane
//	EXN_DS_TEST_EAGER=1      ring for each read, as ends do that do not know slots_due
//
// A value that is not a number or out of range is ignored: the default holds; so is
// what is no subnet.
#include "real.h"

#include "config.h"
#include "lane_shm.h"
#include "policy.h"
#include "zcopy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct config config;

// text is a setting, or NULL.
static const char *text(const char *name)
{
	const char *s = getenv(name);
	return s && *s ? s : policy_setting(name);
}

static uint64_t number(const char *name, uint64_t preset, uint64_t min, uint64_t max)
{
	const char *s = text(name);
	char *end;
	if (!s)
		return preset;
	uint64_t v = strtoull(s, &end, 10);
	return *end || v < min || v > max ? preset : v;
}

static uint32_t power_of_two(const char *name, uint32_t preset, uint32_t min, uint32_t max)
{
	uint64_t v = number(name, preset, min, max);
	return v & (v - 1) ? preset : (uint32_t)v;
}

uint32_t config_subnets(const char *list, struct subnet *to, uint32_t most)
{
	char copy[1024], *save = NULL;
	uint32_t count = 0;
	snprintf(copy, sizeof copy, "%s", list ? list : "");
	for (char *s = strtok_r(copy, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
		struct subnet n = {.address = {[10] = 0xff, [11] = 0xff}};
		char *slash = strchr(s, '/'), *end = NULL;
		if (slash)
			*slash = 0;
		unsigned whole = inet_pton(AF_INET, s, n.address + 12) == 1 ? 32 : 128;
		if (whole == 128 && inet_pton(AF_INET6, s, n.address) != 1)
			continue;
		unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : whole;
		if ((slash && (!slash[1] || *end)) || bits > whole || count == most)
			continue;
		n.bits = (uint8_t)(bits + 128 - whole);
		to[count++] = n;
	}
	return count;
}

void config_init(void)
{
	const char *s = getenv("EXN_DS");
	policy_init(getenv("EXN_DS_POLICY"));
	config.off = s && (!strcmp(s, "off") || !strcmp(s, "0"));
	// Copied: programs that set their title write over the environment.
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *temporary = getenv("TMPDIR");
	if ((s = getenv("EXN_FABRIC")) && *s)
		snprintf(config.fabric, sizeof config.fabric, "%s", s);
	else if (geteuid() == 0)
		snprintf(config.fabric, sizeof config.fabric, "/run/exn");
	else if (runtime && *runtime)
		snprintf(config.fabric, sizeof config.fabric, "%s/exn", runtime);
	else
		snprintf(config.fabric, sizeof config.fabric, "%s/exn-%u", temporary && *temporary ? temporary : "/tmp", geteuid());
	config.calls = (uint32_t)number("EXN_DS_CALLS", 8, 0, 1u << 30);
	config.bytes = number("EXN_DS_BYTES", 16384, 0, 1ull << 62);
	config.guess = !text("EXN_DS_CALLS") && !text("EXN_DS_BYTES") && !number("EXN_DS_REQUIRE", 0, 0, 1);
	config.spin_ns = number("EXN_DS_SPIN_US", 50, 0, 100000) * 1000;
	config.slots = power_of_two("EXN_DS_SLOTS", 64, 16, 1024);
	config.window = power_of_two("EXN_DS_WINDOW", 256 << 10, 16 << 10, 16 << 20);
	config.window_least = power_of_two("EXN_DS_WINDOW_LEAST", 64 << 10, 16 << 10, 16 << 20);
	if (config.window_least > config.window)
		config.window_least = config.window;
	config.windows = (uint32_t)number("EXN_DS_WINDOWS", 1024, 1, POOL_MOST);
	config.lanes = (uint32_t)number("EXN_DS_LANES", 4096, 2, LANE_MOST) & ~1u;
	config.velo_max = (uint32_t)number("EXN_DS_VELO_MAX", 480, 0, 4096);
	config.hot = (uint32_t)number("EXN_DS_HOT", 128, 0, 1u << 30);
	config.buffer = number("EXN_DS_BUFFER", 256 << 10, 1, 1ull << 40);
	config.stuck_ns = number("EXN_DS_STUCK_MS", 100, 0, 1u << 30) * 1000000;
	config.zcopy = number("EXN_DS_ZCOPY", ~0ull, 1, 1ull << 40);
	config.subnet_count = config_subnets(getenv("EXN_DS_SUBNETS"), config.subnets, CONFIG_SUBNETS);
	config.memory = number("EXN_DS_MEMORY", 0, 1, 1ull << 62);
	config.verbose = number("EXN_DS_VERBOSE", 0, 0, 9) > 0;
	config.require = number("EXN_DS_REQUIRE", 0, 0, 1) > 0;
	config.test_switch = (uint32_t)number("EXN_DS_TEST_SWITCH", 0, 0, 1u << 30);
	config.test_seed = number("EXN_DS_TEST_SEED", 1, 0, ~0ull);
	config.test_rx_off = number("EXN_DS_TEST_NOCONSENT", 0, 0, 1) > 0;
	config.test_eager = number("EXN_DS_TEST_EAGER", 0, 0, 1) > 0;
}

static void say(const char *format, va_list ap)
{
	int saved = errno;
	char line[256];
	int n = snprintf(line, sizeof line, "extds[%d]: ", (int)getpid());
	n += vsnprintf(line + n, sizeof line - (size_t)n - 1, format, ap);
	if (n > (int)sizeof line - 2)
		n = (int)sizeof line - 2;
	line[n++] = '\n';
	if (real.write(2, line, (size_t)n) < 0)
		errno = 0; // nobody listens; nothing to be done
	errno = saved;
}

void config_log(const char *format, ...)
{
	va_list ap;
	if (!config.verbose)
		return;
	va_start(ap, format);
	say(format, ap);
	va_end(ap);
}

void config_say(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	say(format, ap);
	va_end(ap);
}

uint32_t config_random(void)
{
	static __thread uint64_t state __attribute__((tls_model("initial-exec")));
	if (!state)
		state = config.test_seed * 0x9e3779b97f4a7c15u + (uint64_t)getpid() + 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return (uint32_t)(state >> 32);
}
