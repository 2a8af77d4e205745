// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Two things are scarce. Address space: a channel maps some hundred MiB, nearly all
// of it never touched, which only a process with RLIMIT_AS notices; channels get a
// quarter of that limit. Memory: whoever touches a page beyond the limit of its
// cgroup is killed. What a channel has touched it keeps until it ends (seals forbid
// to give it back). So slots and windows count from their first use, and all channels
// of a family may take an eighth of the smallest limit of its cgroups or of the
// machine's memory, and not more than 1 GiB; each time an eighth of what is left
// there, what the kernel can reclaim not counted as used.
//
// Windows grow up to a half of that, new ones are used up to three quarters, and the
// rest is for slots. So many connections get small windows instead of few getting
// large ones, and who gets none writes by slots. A connection that gets no slots
// stays on TCP with reason `memory`. EXN_DS_MEMORY sets the whole.
//
// The limits are read when something is touched for the first time, at most once a second.
#include "real.h"

#include "budget.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/sysinfo.h>

#include "clock.h"
#include "config.h"

enum { SHARE = 8, MAP_SHARE = 4, TEXT = 8192, PATH = 4096 };

// What is read, and of what. Threads may have stacks of 16 KiB, so it is mapped for the
// while, and not allocated, since allocators call us.
struct scratch {
	char groups[TEXT], text[TEXT];
	char dir[PATH], path[PATH + 256];
};
#define MOST (1ull << 30)

static _Atomic uint64_t mapped;

bool budget_map(uint64_t size)
{
	struct rlimit r;
	uint64_t now = atomic_fetch_add(&mapped, size) + size;
	if (getrlimit(RLIMIT_AS, &r) == 0 && r.rlim_cur != RLIM_INFINITY && now > r.rlim_cur / MAP_SHARE) {
		budget_unmap(size);
		return false;
	}
	return true;
}

void budget_unmap(uint64_t size) { atomic_fetch_sub(&mapped, size); }

// file reads one. errno stays: whose call this is may succeed.
static bool file(struct scratch *s, const char *dir, const char *name, char text[TEXT])
{
	int saved = errno;
	snprintf(s->path, sizeof s->path, "%s/%s", dir, name);
	int fd = open(s->path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : real.read(fd, text, TEXT - 1);
	if (fd >= 0)
		real.close(fd);
	text[n > 0 ? n : 0] = 0;
	errno = saved;
	return n > 0;
}

// number finds "name value" in text; 0 if it is not there.
static uint64_t number(const char *text, const char *name)
{
	size_t n = strlen(name);
	for (const char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (!strncmp(line, name, n) && line[n] == ' ')
			return strtoull(line + n, NULL, 10);
	}
	return 0;
}

// group lowers *limit and *left to those of the cgroup s->dir, of either version.
static void group(struct scratch *s, bool second, uint64_t *limit, uint64_t *left)
{
	char *text = s->text;
	if (!file(s, s->dir, second ? "memory.max" : "memory.limit_in_bytes", text) || !strncmp(text, "max", 3))
		return;
	uint64_t most = strtoull(text, NULL, 10);
	uint64_t used = file(s, s->dir, second ? "memory.current" : "memory.usage_in_bytes", text) ? strtoull(text, NULL, 10) : 0;
	if (file(s, s->dir, "memory.stat", text)) {
		const char *total = second ? "" : "total_";
		char active[32], inactive[32];
		snprintf(active, sizeof active, "%sactive_file", total);
		snprintf(inactive, sizeof inactive, "%sinactive_file", total);
		uint64_t cache = number(text, active) + number(text, inactive);
		used -= cache < used ? cache : used;
	}
	if (most < *limit)
		*limit = most;
	if (most - (used < most ? used : most) < *left)
		*left = most - (used < most ? used : most);
}

// groups lowers both to those of all our cgroups.
static void groups(struct scratch *s, uint64_t *limit, uint64_t *left)
{
	if (!file(s, "/proc/self", "cgroup", s->groups))
		return;
	for (char *line = s->groups, *next; *line; line = next) {
		next = line + strcspn(line, "\n");
		if (*next)
			*next++ = 0;
		char *kind = strchr(line, ':'), *path = kind ? strchr(kind + 1, ':') : NULL;
		if (!path)
			continue;
		*path++ = 0;
		bool second = !strcmp(kind + 1, "");
		if (!second && strcmp(kind + 1, "memory") != 0)
			continue;
		// Up to the root. In a container the group of this process may be the
		// root of what is mounted, and the path above it lead nowhere.
		for (size_t n = strlen(path);; n--) {
			if (n > 0 && path[n - 1] == '/')
				continue;
			snprintf(s->dir, sizeof s->dir, "/sys/fs/cgroup%s%.*s", second ? "" : "/memory", (int)n, path);
			group(s, second, limit, left);
			while (n > 0 && path[n - 1] != '/')
				n--;
			if (n == 0)
				break;
		}
	}
}

static void limits(uint64_t *limit, uint64_t *left)
{
	struct sysinfo of;
	*limit = *left = ~0ull;
	if (sysinfo(&of) == 0)
		*limit = (uint64_t)of.totalram * of.mem_unit; // what is left of it is the kernel's to find
	int saved = errno;
	struct scratch *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (s != MAP_FAILED) {
		groups(s, limit, left);
		munmap(s, sizeof *s);
	}
	errno = saved;
}

// The parts of the whole, in quarters, up to which a use of memory may bring us.
enum part { FOR_GROWTH = 2, FOR_WINDOWS = 3, FOR_ALL = 4 };

static bool fits(uint64_t all, uint64_t more, enum part part)
{
	static _Atomic uint64_t read_ns, most, left;
	uint64_t now = clock_ns();
	if (config.memory)
		return all <= config.memory / 4 * part;
	if (!most || now - read_ns > 1000000000u) {
		uint64_t l, f;
		limits(&l, &f);
		most = l / SHARE < MOST ? l / SHARE : MOST;
		left = f;
		read_ns = now;
	}
	return all <= most / 4 * part && more <= left / SHARE;
}

// spend adds to what a channel has been granted, if there is so much.
static bool spend(struct lane_pool *p, uint64_t more, enum part part)
{
	atomic_fetch_add(&p->spent, more);
	if (fits(family_spent(), more, part))
		return true;
	atomic_fetch_sub(&p->spent, more);
	return false;
}

bool budget_lane(struct channel *ch, uint32_t lane)
{
	_Atomic uint32_t *word = &ch->touched[lane / 32];
	uint32_t bit = 1u << (lane % 32);
	if (*word & bit)
		return true;
	if (!spend(&ch->pool, LANE_CTL + (uint64_t)ch->own.slots * LANE_SLOT, FOR_ALL))
		return false;
	atomic_fetch_or(word, bit);
	return true;
}

bool budget_window(struct lane_pool *p, uint64_t more, bool growth)
{
	return spend(p, more, growth ? FOR_GROWTH : FOR_WINDOWS);
}

bool budget_whole(struct lane_pool *p, uint64_t size) { return spend(p, size, FOR_WINDOWS); }
