// SPDX-License-Identifier: Apache-2.0
//
// Where a thread or an epoll set sleeps: an epoll descriptor of ours with the
// doorbells of the channels concerned.
#ifndef PERCH_H
#define PERCH_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/epoll.h>

#include "family.h"

struct line { // to one channel
	struct channel *ch;
	struct lane_head *own; // its memory of ours
	uint32_t serial;       // of the channel when this was made
	int w;           // our waiter there
	uint32_t mark; // for walks over descriptors
	int armed; // sleeps under way: a signal handler may sleep inside one
};

struct perch {
	int epfd;
	int lines;
	int sleeps; // of the thread, under way: more than one where a signal handler sleeps, too
	struct {
		struct conn *c; // on which the thread slept last
		uint64_t ino;
		int fd;
		int line;     // to its channel
		bool watched; // the perch has its TCP socket, too
	} last;
	struct perch *next, **at; // all of this process
	struct line line[2 * FAMILY_CHANNELS];
};

// What an event of a perch is about: its data is a kind and a number.
enum perch_kind {
	PERCH_BELL = 1, // a doorbell
	PERCH_HANGUP,   // the control socket of a channel
	PERCH_SOCKET,   // the TCP socket of a lane
	PERCH_SET,      // the program's set that this perch belongs to
	PERCH_WAKE,     // somebody wants the sleepers to look
	PERCH_NEST,     // the perch of a set inside that set
};

struct perch *perch_new(void); // NULL when there is no room
void perch_free(struct perch *p);

// perch_mine is the perch of this thread, made at its first sleep; NULL when
// there is no room: then the thread looks each millisecond.
struct perch *perch_mine(void);

// perch_watch adds a descriptor, perch_ignore takes it away. An event of it comes
// with the number that it is about, which is mostly its own.
bool perch_watch(struct perch *p, enum perch_kind kind, int about, int fd, uint32_t events);
void perch_ignore(struct perch *p, int fd);

// perch_line gives the line to a channel, made if need be; -1 when there is no room.
int perch_line(struct perch *p, struct channel *ch);

// perch_arm and perch_disarm are doorbell_arm and doorbell_disarm for one line of
// a thread. What a call that this one interrupted has armed stays armed.
void perch_arm(struct perch *p, int line);
void perch_disarm(struct perch *p, int line);

// perch_event handles an event that concerns a channel. It returns the channel
// if that has ended.
struct channel *perch_event(struct perch *p, const struct epoll_event *ev);
static inline enum perch_kind perch_kind(const struct epoll_event *ev) { return (enum perch_kind)(ev->data.u64 >> 32); }
static inline int perch_about(const struct epoll_event *ev) { return (int)(uint32_t)ev->data.u64; }

// perch_alone: the perch of this thread tells of all that concerns a connection that reads from a
// lane, its TCP socket included, and has nothing to tell. So it is for who sleeps on the same one
// again and again. Asked after a look at the lane. Not for a sleep inside another one, which may be
// about to begin and count on what there is.
bool perch_alone(struct perch *p, int line, struct conn *c, int fd);

// perch_take handles what a thread's sleep on its perch gave, perch_harvest what woke it from
// another one.
void perch_take(struct perch *p, const struct epoll_event *got, int n);
void perch_harvest(struct perch *p);

// Around fork. The perches of the parent are of no use to the child.
void perch_fork(void);
void perch_forked(void);
void perch_child(void);

#endif
