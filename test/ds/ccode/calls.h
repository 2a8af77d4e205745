// SPDX-License-Identifier: Apache-2.0
//
// What the files that make calls share.
//
// Each function c_CALL stands for one call of a script and writes what a
// program could have seen of it into the log: the value, errno, the bytes
// (their count and a hash), the readiness. What differs between two runs over
// plain TCP (ports, how much fits into a buffer) goes into the note instead.
#ifndef CALLS_H
#define CALLS_H

#include "player.h"

#include <stdbool.h>

struct entry {
	const char *name;
	void (*make)(struct call *);
	bool creates; // "HANDLE CALL ARGS...": it makes a descriptor
};

// Each ends with an entry without name.
extern const struct entry socket_calls[], byte_calls[], ready_calls[], process_calls[];

// guard bounds waits that end at once when all is well, in milliseconds.
enum { guard = 4000 };

void say(struct call *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
void result(struct call *c, long r);        // what a call returned, or errno
void new(struct call *c, int fd);           // binds the first word to a descriptor
void say_bytes(struct call *c, const unsigned char *p, long n);
unsigned char *filled(unsigned id, uint64_t from, size_t n); // the pattern; to be freed

const char *arg(struct call *c, int i); // "" when there are fewer
long number(struct call *c, int i);
int fd_of(struct call *c, int i);

struct word { const char *name; long value; };
long mask(const char *text, const struct word *words);
void say_mask(struct call *c, long m, const struct word *words);

int64_t now_ms(void);

#endif
