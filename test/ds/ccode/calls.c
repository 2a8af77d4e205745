// SPDX-License-Identifier: Apache-2.0
//
// calls.c finds the function for a call, and holds what all of them use.
#include "calls.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void say(struct call *c, const char *format, ...)
{
	size_t n = strlen(c->log);
	va_list ap;
	va_start(ap, format);
	vsnprintf(c->log + n, sizeof c->log - n, format, ap);
	va_end(ap);
}

// result says what a call returned, and errno when it failed.
void result(struct call *c, long r)
{
	if (r < 0)
		say(c, "%s", strerrorname_np(errno));
	else
		say(c, "%ld", r);
}

const char *arg(struct call *c, int i) { return i < c->argc ? c->argv[i] : ""; }
long number(struct call *c, int i) { return strtol(arg(c, i), NULL, 0); }
int fd_of(struct call *c, int i) { return handle(arg(c, i)); }

int64_t now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

// new binds the first word of "handle call args..." to a fresh descriptor.
void new(struct call *c, int fd)
{
	if (fd >= 0)
		bind_handle(c->argv[0], fd);
	say(c, "%s", fd < 0 ? strerrorname_np(errno) : "ok");
}

// mask turns "a,b,c" into the or of the named values; "-" is nothing.
long mask(const char *text, const struct word *words)
{
	long m = 0;
	for (const char *p = text; *p;) {
		size_t n = strcspn(p, ",");
		for (const struct word *w = words; w->name; w++)
			if (strlen(w->name) == n && strncmp(w->name, p, n) == 0)
				m |= w->value;
		p += n + (p[n] == ',');
	}
	return m;
}

void say_mask(struct call *c, long m, const struct word *words)
{
	bool any = false;
	for (const struct word *w = words; w->name; w++)
		if (m & w->value) {
			say(c, "%s%s", any ? "," : "", w->name);
			any = true;
			m &= ~w->value;
		}
	if (m || !any)
		say(c, any ? ",%#lx" : m ? "%#lx" : "-", m);
}

void perform(struct call *c)
{
	const struct entry *tables[] = {socket_calls, byte_calls, ready_calls, process_calls};
	for (size_t i = 0; i < sizeof tables / sizeof tables[0]; i++)
		for (const struct entry *e = tables[i]; e->name; e++) {
			if (c->argc <= e->creates || strcmp(c->argv[e->creates], e->name) != 0)
				continue;
			signals_seen = 0;
			int64_t began = now_ms();
			e->make(c);
			if (signals_seen)
				say(c, " signals=%u", signals_seen);
			size_t n = strlen(c->note);
			snprintf(c->note + n, sizeof c->note - n, "%sms=%ld", n ? " " : "", now_ms() - began);
			return;
		}
	say(c, "unknown call");
}
