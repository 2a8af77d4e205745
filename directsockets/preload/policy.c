// SPDX-License-Identifier: Apache-2.0
//
// EXN_DS_POLICY is what exn-tun run makes of a policy file (../policy): records
// that end with ';', words divided by a blank.
//
//	program PATTERN SETTING=VALUE ...
//	connection PATTERN in|out|any PORTS ADDRESSES yes|no
//
// PATTERN is for the program's name, with * and ?; the first record of a kind that
// fits is the one that holds. PORTS (of the server) is "any" or like 80,8000-8010,
// ADDRESSES (of the other end) "any" or like 10.0.0.0/8,fd00::/8. What is not
// understood is skipped: exn-tun run has told of it before.
//
// It is read without malloc: an allocator like jemalloc opens files while it begins,
// with its lock held, and that call of open may be the first that the library sees.
#include "real.h"

#include "policy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "config.h"
#include "conn.h"
#include "tuple.h"

enum { RULES = 64, PORTS = 16, SUBNETS = 16, SETTINGS = 2048 };

struct rule {
	bool in, out, upgrade;
	uint32_t ports, subnets; // 0: any
	uint16_t from[PORTS], to[PORTS];
	struct subnet subnet[SUBNETS];
};

static struct rule rules[RULES]; // those for this program
static uint32_t count;
static char settings[SETTINGS]; // of this program: the rest of its record

static bool parse_ports(struct rule *r, char *list)
{
	char *save = NULL, *end;
	if (!strcmp(list, "any"))
		return true;
	for (char *s = strtok_r(list, ",", &save); s; s = strtok_r(NULL, ",", &save)) {
		unsigned long from = strtoul(s, &end, 10), to = *end == '-' ? strtoul(end + 1, &end, 10) : from;
		if (*end || from > to || to > 65535 || r->ports == PORTS)
			return false;
		r->from[r->ports] = (uint16_t)from;
		r->to[r->ports++] = (uint16_t)to;
	}
	return r->ports > 0;
}

static void connection(char *record)
{
	char *save = NULL, *word[6];
	struct rule r = {0};
	word[0] = strtok_r(record, " ", &save);
	for (int i = 1; i < 6; i++)
		word[i] = strtok_r(NULL, " ", &save);
	if (!word[5] || fnmatch(word[1], program_invocation_short_name, 0) != 0 || count == RULES || !parse_ports(&r, word[3]))
		return;
	r.in = strcmp(word[2], "out") != 0;
	r.out = strcmp(word[2], "in") != 0;
	r.upgrade = !strcmp(word[5], "yes");
	if (strcmp(word[4], "any") != 0) {
		r.subnets = config_subnets(word[4], r.subnet, SUBNETS);
		if (r.subnets == 0)
			return;
	}
	rules[count++] = r;
}

static void program(char *record)
{
	char *save = NULL;
	strtok_r(record, " ", &save);
	const char *pattern = strtok_r(NULL, " ", &save);
	static bool found;
	if (pattern && !found && fnmatch(pattern, program_invocation_short_name, 0) == 0) {
		snprintf(settings, sizeof settings, "%s", save ? save : "");
		found = true;
	}
}

void policy_init(const char *text)
{
	size_t size = text ? strlen(text) + 1 : 0;
	char *copy = size > 1 ? mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) : MAP_FAILED, *save = NULL;
	if (copy == MAP_FAILED)
		return;
	memcpy(copy, text, size);
	for (char *record = strtok_r(copy, ";", &save); record; record = strtok_r(NULL, ";", &save)) {
		if (!strncmp(record, "connection ", 11))
			connection(record);
		else if (!strncmp(record, "program ", 8))
			program(record);
	}
	munmap(copy, size);
}

const char *policy_setting(const char *name)
{
	static char value[64];
	size_t n = strlen(name);
	for (const char *s = settings; *s; s += strcspn(s, " ")) {
		s += strspn(s, " ");
		if (!strncmp(s, name, n) && s[n] == '=') {
			snprintf(value, sizeof value, "%.*s", (int)strcspn(s + n + 1, " "), s + n + 1);
			return value;
		}
	}
	return NULL;
}

static bool about(const struct rule *r, const struct conn *c)
{
	uint16_t port = ntohs(c->active ? c->tuple.remote_port : c->tuple.local_port);
	bool yes = r->ports == 0;
	for (uint32_t i = 0; i < r->ports && !yes; i++)
		yes = port >= r->from[i] && port <= r->to[i];
	if (!yes || !(c->active ? r->out : r->in))
		return false;
	yes = r->subnets == 0;
	for (uint32_t i = 0; i < r->subnets && !yes; i++)
		yes = tuple_inside(c->tuple.remote, &r->subnet[i]);
	return yes;
}

bool policy_upgrades(const struct conn *c)
{
	for (uint32_t i = 0; i < count; i++)
		if (about(&rules[i], c))
			return rules[i].upgrade;
	return true;
}
