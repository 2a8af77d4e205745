// SPDX-License-Identifier: Apache-2.0
//
// The environment of the library, in one place.
//
//	EXN_DS=off            do nothing at all
//	EXN_FABRIC=DIR        the fabric directory; default /run/exn for root,
//	                      else $XDG_RUNTIME_DIR/exn, else $HOME/.exn
//	EXN_PEERS=same-user   or group: whose programs meet there (../../fabric/dir)
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
// what is no subnet, and a variable EXN_DS... that is none of these. The first TCP socket
// of the program says so, once, in a line (config_warn). ../settings has the same table for
// exn-tun and the Go package, and its tests compare it with what is refused here.
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
#include <sys/stat.h>

struct config config;

// text is a setting, or NULL.
static const char *text(const char *name)
{
	const char *s = getenv(name);
	return s && *s ? s : policy_setting(name);
}

// What is wrong with the settings, for one line; and what stderr was when the program began.
static char mistakes[768];
static struct stat stderr_was;

// mistake adds to that.
__attribute__((format(printf, 1, 2))) static void mistake(const char *format, ...)
{
	va_list ap;
	size_t n = strlen(mistakes);
	n += (size_t)snprintf(mistakes + n, sizeof mistakes - n, "%s", n ? "; " : "");
	if (n >= sizeof mistakes)
		return;
	va_start(ap, format);
	vsnprintf(mistakes + n, sizeof mistakes - n, format, ap);
	va_end(ap);
}

// parse reads digits, all of them and nothing else.
static bool parse(const char *s, uint64_t *v)
{
	char *end;
	if (strspn(s, "0123456789") != strlen(s))
		return false;
	errno = 0;
	*v = strtoull(s, &end, 10);
	return errno == 0;
}

// legal: s is a number of that range. Else it is noted what the setting is instead.
static bool legal(const char *name, const char *s, const char *kind, const char *preset, uint64_t min, uint64_t max, uint64_t *v)
{
	bool power = !strcmp(kind, "a power of two");
	if (parse(s, v) && *v >= min && *v <= max && !(power && *v & (*v - 1)))
		return true;
	mistake("%s=%s: write %s from %llu to %llu (%s holds)", name, s, kind, (unsigned long long)min, (unsigned long long)max, preset);
	return false;
}

static uint64_t read_number(const char *name, const char *kind, uint64_t preset, uint64_t min, uint64_t max)
{
	const char *s = text(name);
	char holds[24] = "the default"; // by the limits of the machine
	uint64_t v;
	if (preset >= min)
		snprintf(holds, sizeof holds, "%llu", (unsigned long long)preset);
	return s && legal(name, s, kind, holds, min, max, &v) ? v : preset;
}

static uint64_t number(const char *name, uint64_t preset, uint64_t min, uint64_t max)
{
	return read_number(name, "a number", preset, min, max);
}

static uint32_t power_of_two(const char *name, uint32_t preset, uint32_t min, uint32_t max)
{
	return (uint32_t)read_number(name, "a power of two", preset, min, max);
}

// off_or_number is ~0 if it is off.
static uint64_t off_or_number(const char *name, uint64_t min, uint64_t max)
{
	const char *s = text(name);
	uint64_t v;
	return s && strcmp(s, "off") != 0 && legal(name, s, "off, or a number", "off", min, max, &v) ? v : ~0ull;
}

// is_set: a number is set, and a legal one, so it is not the default.
static bool is_set(const char *name, uint64_t max)
{
	const char *s = text(name);
	uint64_t v;
	return s && parse(s, &v) && v <= max;
}

// known are all variables that begin with EXN_DS and are read here, or by Go programs.
static const char *const known[] = {
	"EXN_DS", "EXN_DS_BUFFER", "EXN_DS_BYTES", "EXN_DS_CALLS", "EXN_DS_HOT", "EXN_DS_LANES", "EXN_DS_MEMORY",
	"EXN_DS_POLICY", "EXN_DS_REQUIRE", "EXN_DS_SLOTS", "EXN_DS_SPIN_US", "EXN_DS_STUCK_MS", "EXN_DS_SUBNETS",
	"EXN_DS_TEST_EAGER", "EXN_DS_TEST_NOCONSENT", "EXN_DS_TEST_SEED", "EXN_DS_TEST_SWITCH", "EXN_DS_VELO_MAX",
	"EXN_DS_VERBOSE", "EXN_DS_WINDOW", "EXN_DS_WINDOWS", "EXN_DS_WINDOW_LEAST", "EXN_DS_ZCOPY",
};

// unknown notes the variables that are none of those.
static void unknown(void)
{
	for (char **e = environ; e && *e; e++) {
		size_t n = strcspn(*e, "=");
		bool is = strncmp(*e, "EXN_DS", 6) != 0 || !(*e)[n] || !(*e)[n + 1];
		for (size_t i = 0; i < sizeof known / sizeof *known && !is; i++)
			is = strlen(known[i]) == n && !strncmp(*e, known[i], n);
		if (!is)
			mistake("%s: there is no such setting; exn-tun help settings lists them", *e);
	}
}

// subnets_of is config_subnets; *all is false if something in the list was left out.
static uint32_t subnets_of(const char *list, struct subnet *to, uint32_t most, bool *all)
{
	char copy[1024], *save = NULL;
	uint32_t count = 0;
	*all = !list || strlen(list) < sizeof copy;
	snprintf(copy, sizeof copy, "%s", list ? list : "");
	for (char *s = strtok_r(copy, ", ", &save); s; s = strtok_r(NULL, ", ", &save)) {
		struct subnet n = {.address = {[10] = 0xff, [11] = 0xff}};
		char *slash = strchr(s, '/'), *end = NULL;
		if (slash)
			*slash = 0;
		unsigned whole = inet_pton(AF_INET, s, n.address + 12) == 1 ? 32 : 128;
		bool is = whole == 32 || inet_pton(AF_INET6, s, n.address) == 1;
		unsigned long bits = slash ? strtoul(slash + 1, &end, 10) : whole;
		if (!is || (slash && (!slash[1] || *end)) || bits > whole || count == most) {
			*all = false;
			continue;
		}
		n.bits = (uint8_t)(bits + 128 - whole);
		to[count++] = n;
	}
	return count;
}

uint32_t config_subnets(const char *list, struct subnet *to, uint32_t most)
{
	bool all;
	return subnets_of(list, to, most, &all);
}

void config_init(void)
{
	const char *s = getenv("EXN_DS");
	policy_init(getenv("EXN_DS_POLICY"));
	config.off = s && (!strcmp(s, "off") || !strcmp(s, "0"));
	if (s && *s && !config.off && strcmp(s, "on") != 0 && strcmp(s, "1") != 0)
		mistake("EXN_DS=%s: write on or off (on holds)", s);
	// Copied: programs that set their title write over the environment.
	const char *runtime = getenv("XDG_RUNTIME_DIR"), *home = getenv("HOME");
	if ((s = getenv("EXN_FABRIC")) && *s)
		snprintf(config.fabric, sizeof config.fabric, "%s", s);
	else if (geteuid() == 0)
		snprintf(config.fabric, sizeof config.fabric, "/run/exn");
	else if (runtime && *runtime == '/')
		snprintf(config.fabric, sizeof config.fabric, "%s/exn", runtime);
	else if (home && *home == '/')
		snprintf(config.fabric, sizeof config.fabric, "%s/.exn", home);
	for (size_t n = strlen(config.fabric); n > 1 && config.fabric[n - 1] == '/'; n--)
		config.fabric[n - 1] = 0; // with a slash behind it a symbolic link would be followed
	config.group = (s = text("EXN_PEERS")) && !strcmp(s, "group");
	if (s && !config.group && strcmp(s, "same-user") != 0)
		mistake("EXN_PEERS=%s: write same-user or group", s);
	config.calls = (uint32_t)number("EXN_DS_CALLS", 8, 0, 1u << 30);
	config.bytes = number("EXN_DS_BYTES", 16384, 0, 1ull << 62);
	config.require = number("EXN_DS_REQUIRE", 0, 0, 1) > 0;
	config.guess = !is_set("EXN_DS_CALLS", 1u << 30) && !is_set("EXN_DS_BYTES", 1ull << 62) && !config.require;
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
	config.zcopy = off_or_number("EXN_DS_ZCOPY", 1, 1ull << 40);
	bool all;
	const char *subnets = getenv("EXN_DS_SUBNETS");
	config.subnet_count = subnets_of(subnets, config.subnets, CONFIG_SUBNETS, &all);
	if (!all)
		mistake("EXN_DS_SUBNETS=%s: write up to %d subnets, such as 10.0.0.0/8,fd00::/8 (the others hold)", subnets, CONFIG_SUBNETS);
	config.memory = number("EXN_DS_MEMORY", 0, 1, 1ull << 62);
	config.verbose = number("EXN_DS_VERBOSE", 0, 0, 9) > 0;
	config.test_switch = (uint32_t)number("EXN_DS_TEST_SWITCH", 0, 0, 1u << 30);
	config.test_seed = number("EXN_DS_TEST_SEED", 1, 0, ~0ull);
	config.test_rx_off = number("EXN_DS_TEST_NOCONSENT", 0, 0, 1) > 0;
	config.test_eager = number("EXN_DS_TEST_EAGER", 0, 0, 1) > 0;
	unknown();
	if (*mistakes && real_fstat(2, &stderr_was) < 0)
		*mistakes = 0; // nobody would hear of them
}

void config_warn(void)
{
	static _Atomic bool once;
	struct stat is;
	int family = AF_UNSPEC;
	socklen_t n = sizeof family;
	if (!*mistakes || atomic_exchange(&once, true))
		return;
	// By now it may be something else, which is not for our words; and that of a program of inetd is a connection.
	if (real_fstat(2, &is) < 0 || is.st_dev != stderr_was.st_dev || is.st_ino != stderr_was.st_ino ||
	    (real.getsockopt(2, SOL_SOCKET, SO_DOMAIN, &family, &n) == 0 && family != AF_UNIX))
		return;
	config_say("%s", mistakes);
}

static void say(const char *format, va_list ap)
{
	int saved = errno;
	char line[1024];
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
