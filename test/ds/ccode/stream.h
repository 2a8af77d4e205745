// SPDX-License-Identifier: Apache-2.0
//
// What the processes of a stream run share; see stream.c.
#ifndef STREAM_H
#define STREAM_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "rng.h"

enum {
	max_conns = 4,
	max_round = 4096,
	shared_fd = 200, // the memory file of struct run, inherited
};

enum role { client, server };

// What the bytes of one direction went through at one end. Whoever makes a call
// holds lock, so that off is the offset of that call; threads and forked
// children take turns.
struct half {
	pthread_mutex_t lock;
	_Atomic uint64_t off;     // bytes of calls that have returned
	_Atomic uint64_t attempt; // the most that a call under way may reach
	_Atomic uint64_t sum;     // of the bytes, where reads are concurrent
	_Atomic int done;         // enum done
	_Atomic uint32_t calls;
};

void half_take(struct half *h);
void half_give(struct half *h);

enum done { going, at_end, was_reset };

struct direction {
	uint64_t total, key;
	bool small;      // one to some hundred bytes a call
	bool concurrent; // readers do not take turns; see flow.c
	_Atomic int hold; // writers are to let somebody else have the lock
	struct half w, r;
};

struct conn {
	struct direction to[2]; // to[server] is what the client writes
	int handed_over;        // by one end: 1 to programs, 2 for good; with the locks of both writers
};

struct run {
	bool alone; // one process has both ends
	uint64_t seed;
	bool death;      // one side dies: ends may be early
	bool stops;      // sides are stopped, which interrupts calls
	bool buffers;    // writers have registered buffers, too
	bool hands_over; // in the middle of streams: see side.c
	int family;      // 4, 6, or 0 for mapped addresses
	int conns, rounds;
	_Atomic int port;
	_Atomic int failed;
	_Atomic int round;          // that the server is in
	_Atomic int over;           // rounds whose client is no more
	_Atomic int handed_over;
	_Atomic uint64_t lane, tcp; // bytes that the library counted on either path
	_Atomic uint64_t zcopy;     // of the lanes', those by ZCopy
	_Atomic int fds[2], maps[2]; // of the server after early and after all rounds
	struct conn conn[][max_conns]; // by round
};

extern struct run *run;

// fail says what is wrong, once, and ends the process.
_Noreturn void fail(const char *format, ...) __attribute__((format(printf, 1, 2)));

// A caller is a thread that makes calls for one direction of a connection.
struct caller {
	struct rng rng;
	struct direction *d;
	int fd, set, file; // set: an epoll set of its own; file: for sendfile; -1 when not there yet
	bool edge;         // set is edge-triggered
	bool interrupted;  // by signals, a timeout, or somebody who sets O_NONBLOCK
	bool eof_by_close; // the end of what we write is close, not shutdown
	int leave;         // calls after which it goes; -1 stays
	const char *who;
};
void write_flow(struct caller *c);
void read_flow(struct caller *c);
void caller_free(struct caller *c);
uint64_t expected_sum(const struct direction *d);

// play_side is the life of a client or server process.
int play_side(enum role role, int round);

#endif
