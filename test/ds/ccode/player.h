// SPDX-License-Identifier: Apache-2.0
//
// player plays one end of a script of socket calls and says what each call
// gave. See player.c for the protocol and calls.h for the calls.
#ifndef PLAYER_H
#define PLAYER_H

#include <stddef.h>
#include <stdint.h>

enum { max_args = 16, max_text = 4096 };

// A call is one line of a script with its outcome: log is compared between
// runs, note (ports, pids, totals) is only for whoever conducts the play.
struct call {
	unsigned id; // number of the step; the bytes that it writes follow from it
	int argc;
	char *argv[max_args];
	char line[max_text];
	char log[max_text];
	char note[256];
};

// perform makes the call and fills in log and note.
void perform(struct call *c);

// The handles: names in the script for descriptors. Safe for several threads.
int handle(const char *name); // -1 when there is none: the call then gets EBADF
void bind_handle(const char *name, int fd);
// handles_text lists them as name=fd,..., handles_parse reads that.
void handles_text(char *out, size_t size);
void handles_parse(const char *text);

// Signals that handlers of ours saw on this thread since the last clear.
extern __thread unsigned signals_seen;
void watch_signal(int signo, int flags);

// pattern is byte number at of what step id writes.
static inline unsigned char pattern(unsigned id, uint64_t at)
{
	uint64_t x = (at + 1) * 0x9e3779b97f4a7c15u + id * 0xd1342543de82ef95u;
	return (unsigned char)(x >> 56 ^ x >> 29);
}

// Process calls that player.c makes, since they concern the player itself.
void play_fork(struct call *c);
void play_exec(struct call *c);

#endif
