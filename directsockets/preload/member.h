// SPDX-License-Identifier: Apache-2.0
//
// What a set of the program consists of, for epset.c, which keeps it, and
// epwait.c, which waits in it. Nobody else looks inside.
#ifndef MEMBER_H
#define MEMBER_H

#include <pthread.h>

#include "crowd.h"
#include "epset.h"
#include "perch.h"
#include "single.h"

struct member {
	struct conn *c;    // with a use of ours on it while `ours`; or
	struct epset *set; // a set in the set, with a use of ours
	int fd;            // by_fd[fd] is this one, unless the program closed that copy
	int key;           // the number it was added by, under which the kernel has it
	uint32_t events;
	epoll_data_t data;
	bool ours;     // readiness is computed here: engaged, or a set
	bool deleted;  // the perch does not know yet
	bool absent;   // on TCP, but not in the kernel's set: a one-shot that has fired
	bool disabled; // one-shot, fired
	bool edge;     // the program asked anew
	bool kernel;   // the kernel had something
	bool moved;    // the perch watches it by another descriptor: its first event may be no news
	uint32_t last; // what was reported last
	bool starving; // the peer was asked to ring when there is room
	uint64_t seen; // slots up to here have been reported
	uint64_t turns; // of which so many bring nothing
	uint64_t tcp_seen; // TCP bytes that had come at the last report
	uint32_t starved;
	uint32_t shutdowns, lowats;
	uint32_t heard; // of an end, from the kernel
	bool ended;     // the lane has told of it
	bool fin_told;  // that the peer has our FIN
	bool over;      // the kernel has told so
	int at, hot_at; // in ours and hot
	struct marks *marks; // it asks for these (marks.c)
	bool asked;          // and none has come since
	bool cold;           // not in hot
	unsigned quiet;      // since this wait
};

// An event of a member, which was found at this place of hot. key sorts: how long ago it became ready, and its
// number in what was found.
struct found {
	uint64_t key;
	struct member *m;
	unsigned at;
	struct epoll_event event;
};

// Guarded by lock unless atomic.
struct epset {
	struct lock lock;
	struct epset *next;
	_Atomic uint32_t users;  // calls inside, and sets that have this one as a member
	_Atomic int refs;   // descriptors
	_Atomic uint32_t native; // calls that may sleep in the kernel on the program's own set
	int epfd;           // one of its descriptors

	struct member *_Atomic *_Atomic by_fd; // never freed: looked into without the lock
	_Atomic int cap;
	struct member *spare; // for the next that is added
	struct member **ours;
	_Atomic int nours;
	_Atomic uint32_t joins; // how often a member became ours
	int ours_cap;
	struct member **hot; // of ours, those that are looked at each time
	int nhot;
	struct found *found; // room for what a look finds; epwait.c
	struct marks *marks;
	unsigned waits, chilling;
	bool heated; // some have become hot again
	bool moved;  // some are watched by descriptors that may be members themselves
	_Atomic bool full;  // the last wait was full with what the kernel had
	_Atomic bool level; // a level was told, which is so for others that wait, too
	uint32_t news; // counts what the program asked anew, and events of the kernel, of ours
	_Atomic int deleted; // members

	struct perch *_Atomic perch; // from the first member that is ours
	_Atomic bool poor;           // the perch cannot tell everything: look each millisecond
	_Atomic uint64_t patience;   // how long who sleeps may wait for room for a member (tx_patience)
	_Atomic int sleepers; // calls asleep on the perch, or on one that watches it
	_Atomic bool kicked; // those that sleep natively are being woken

	_Atomic bool waited; // by a call that we saw
	_Atomic bool inherited;             // by fork, and not used since: uses are not counted
	bool shared;                // with the parent
	const struct conn *_Atomic engaging; // is being engaged by who holds the lock

	unsigned start; // where to begin the next scan
	_Atomic uint64_t kernel_ns; // when the kernel was asked last
	_Atomic uint64_t fresh_ns;  // when it had something
	struct spin spin;
	struct crowd crowd;
	struct conn *last; // which of ours was reported last

	_Atomic uint32_t inside; // calls that may take events from there (oneshot.c)
	_Atomic bool shut;  // they must not now
	_Atomic uint64_t hold; // until then they do not start, if there are any
	_Atomic int vain;      // times that was for nothing
	_Atomic uint64_t kicked_ns; // when kicked was set last; 0: never
};

// A set is this process' own, but who waits for its lock may have to for longer, and sleeps then. Not with musl:
// there a thread has all its mutexes in a list, also those that are made anew in the child of a fork.
static inline const _Atomic bool *epset_sole(void)
{
	return single_thread() || real_musl ? &lock_own : NULL;
}

// False: this thread holds the lock already (a signal handler inside a call).
static inline bool epset_lock(struct epset *e) { return lock_take(&e->lock, epset_sole()) != LOCK_REFUSED; }
static inline bool epset_trylock(struct epset *e) { return lock_try(&e->lock, epset_sole()); }
static inline void epset_unlock(struct epset *e) { lock_give(&e->lock); }

static inline struct member *member_at(struct epset *e, int fd) { return fd >= 0 && fd < e->cap ? e->by_fd[fd] : NULL; }

// All that follow: with the lock.

#define MEMBER_HINTS (EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLPRI | EPOLLET)

// member_add makes one that is the kernel's; NULL: no room. member_free forgets it; the kernel and
// the perch are told elsewhere.
struct member *member_add(struct epset *e, int fd, const struct epoll_event *ev);
void member_free(struct epset *e, struct member *m);

// member_revive: one that was ours is added again before its DEL was done; all is as
// it was but the program's wishes. False: no room.
bool member_revive(struct epset *e, struct member *m, const struct epoll_event *ev);

// member_own makes a member ours; its connection is engaged or being so, or it is
// a set. from_kernel: the kernel's set has had it. False and errno: no room.
bool member_own(struct epset *e, struct member *m, bool from_kernel);
// member_engage makes those members of a set ours that are connection c, which is being
// engaged. False: not now, or never if *why is set.
bool member_engage(struct epset *e, struct conn *c, enum reason *why);
// member_give gives it back to the kernel's set.
void member_give(struct epset *e, struct member *m);

// Parts of these: the list of ours; the perch; for a set, leaving the perch; for
// a lane, that the perch watches this descriptor, and that the peer rings us, too.
void member_remove(struct epset *e, struct member *m);
void member_join(struct epset *e, struct member *m);
void member_part(struct epset *e, struct member *m);
void member_ignore(struct epset *e, const struct member *m);
void member_unwatch(struct epset *e, struct member *m);

// member_ask notes what ADD or MOD asks for.
void member_ask(struct member *m, const struct epoll_event *ev);

// member_due is what to report of one of ours now; with take it is reported.
uint32_t member_due(struct member *m, bool take);

// member_tcp_here counts the bytes of a connection that the kernel holds.
uint32_t member_tcp_here(const struct member *m);

// epset_adopt makes a set that was inherited by fork usable here.
void epset_adopt(struct epset *e);

// epset_waited: somebody waits in it for the first time. Its members are watched from then on.
void epset_waited(struct epset *e); // without the lock
// epset_flush does what DEL recorded, and gives back to the kernel's set what
// another process of the family has taken off its lane.
void epset_flush(struct epset *e);

// epset_arm_by: n calls more are about to sleep; negative: fewer. 0: somebody else took what
// was to wake those who sleep. Then look, once more.
void epset_arm_by(struct epset *e, int n);

// epset_wake lets one of those that sleep on the perch look again.
void epset_wake(struct epset *e);

// member_kick gets those out of the kernel that sleep in the program's own set.
void member_kick(struct epset *e);

// epset_without_kick takes our own event out of what the kernel reported. Without the
// lock: epset_unkick takes it out of the kernel when all who slept there are out.
int epset_without_kick(const struct epset *e, struct epoll_event *evs, int n);
void epset_unkick(struct epset *e);

#endif
