// SPDX-License-Identifier: Apache-2.0
//
// The kernel tells the inode of the socket at the other end, and /proc which process has a
// descriptor of it. One that uses the library has its status memory among its
// descriptors (../../docs/protocols/ext-ds.md, "Status").
//
// Nothing here calls malloc, for a signal handler may have interrupted that.
#include "real.h"

#include "far.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

#include "config.h"
#include "conn.h"
#include "home.h"
#include "proof.h"
#include "tuple.h"

char far_words[160];

void far_program(char *to, uint32_t pid)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/%u/comm", pid);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? -1 : real.read(fd, to, 15);
	if (fd >= 0)
		real.close(fd);
	n = n > 0 && to[n - 1] == '\n' ? n - 1 : n;
	to[n > 0 ? n : 0] = 0;
	for (char *c = to; *c; c++)
		if ((unsigned char)*c < ' ')
			*c = '?';
}

// each calls f for each entry of a directory that has a number for its name, until that says true.
static bool each(const char *path, bool (*f)(int dir, const char *name, void *arg), void *arg)
{
	struct entry {
		uint64_t ino;
		int64_t off;
		unsigned short size;
		unsigned char type;
		char name[];
	};
	_Alignas(struct entry) char space[1024];
	bool found = false;
	int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (dir < 0)
		return false;
	for (long n; !found && (n = real.syscall(SYS_getdents64, dir, space, sizeof space)) > 0;)
		for (long at = 0; !found && at < n; at += ((struct entry *)(space + at))->size) {
			const char *name = ((struct entry *)(space + at))->name;
			if (*name >= '0' && *name <= '9')
				found = f(dir, name, arg);
		}
	real.close(dir);
	return found;
}

struct search {
	char socket[40]; // what a descriptor of it leads to
	bool holds, library;
	uint32_t plain; // the first process that holds it and has no library
};

// descriptor looks at one of a process.
static bool descriptor(int dir, const char *name, void *arg)
{
	static const char memory[] = "/memfd:exn-ds-family";
	struct search *s = arg;
	char target[64];
	ssize_t n = readlinkat(dir, name, target, sizeof target - 1);
	target[n > 0 ? n : 0] = 0;
	s->holds |= !strcmp(target, s->socket);
	s->library |= !strncmp(target, memory, sizeof memory - 1);
	return s->holds && s->library;
}

// process looks at one process.
static bool process(int dir, const char *name, void *arg)
{
	(void)dir;
	struct search *s = arg;
	char path[64];
	snprintf(path, sizeof path, "/proc/%.20s/fd", name);
	s->holds = s->library = false;
	each(path, descriptor, s);
	if (s->holds && !s->library && !s->plain)
		s->plain = (uint32_t)strtoul(name, NULL, 10);
	return s->holds && s->library;
}

enum far far_look(const struct conn *c, int fd)
{
	struct tuple other;
	struct search s = {0};
	uint64_t ino;
	uint32_t uid;
	char name[16];
	int saved = errno;
	enum far is = FAR_UNKNOWN;
	tuple_turn(&other, &c->tuple);
	if (proof_far(&other, home_cookie(fd), &ino, &uid) && ino) {
		snprintf(s.socket, sizeof s.socket, "socket:[%llu]", (unsigned long long)ino);
		if (each("/proc", process, &s)) {
			is = FAR_LIBRARY;
		} else if (s.plain) {
			is = FAR_PLAIN;
			far_program(name, s.plain);
			snprintf(far_words, sizeof far_words, "%s (process %u) does not use the library: start it with exn-tun run", name, s.plain);
		} else if (uid != geteuid() && !config.group) {
			is = FAR_STRANGER;
		}
	}
	errno = saved;
	return is;
}

bool far_never(const struct conn *c, int fd, enum reason *why)
{
	enum far far = far_look(c, fd);
	*why = far == FAR_PLAIN ? REASON_PLAIN : REASON_NO_PEER;
	return far == FAR_PLAIN || far == FAR_STRANGER;
}

enum reason far_missing(struct conn *c, int fd)
{
	enum reason why = REASON_NO_PEER;
	if (config.verbose && tuple_know(c, fd)) {
		far_never(c, fd, &why);
		conn_log(c, "is on TCP: %s", why == REASON_PLAIN ? far_words : reason_names[why]);
	}
	return why;
}
