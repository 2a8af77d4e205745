// SPDX-License-Identifier: Apache-2.0
//
// What the files of record share; record.c has the theory.
#ifndef RECORD_H
#define RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));
void print_bytes(const void *from, size_t n); // and a new line

int layout(void);
int slots(void);
int round_of(void); // checks, and writes nothing

// Calls of an end, 'a' or 'b', which are noted.
void put(char who, char letter, size_t n);      // send, all of it
void get(char who, size_t n, ssize_t want);     // recv
void half_close(char who);                      // shutdown(SHUT_WR)
void end(char who);                             // close
void leave(char who, bool off);                 // its writer returns to TCP; or may switch again
void withdraw(char who);                        // its reader returns to TCP: go_back

extern const struct scene {
	const char *name;
	void (*play)(void);
} scenes[];

#endif
