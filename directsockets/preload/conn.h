// SPDX-License-Identifier: Apache-2.0
//
// A TCP connection of the program: references, counting, and the step from
// plain TCP to lanes.
#ifndef CONN_H
#define CONN_H

#include "channel.h"
#include "config.h"
#include "family.h"
#include "files.h"
#include "rendezvous.h"
#include "single.h"

extern _Atomic int conn_attached; // connections of this process that wait to be engaged
extern _Atomic enum reason conn_never; // why new connections stay on TCP, REASON_NONE while they need not

void conn_reap(struct conn *c);

// conn_sole: this thread is the only one of all processes that can use it.
static inline bool conn_sole(const struct conn *c)
{
	return single_thread() && atomic_load_explicit((_Atomic bool *)(uintptr_t)&c->sole, memory_order_relaxed);
}

// conn_put ends a use that conn_get began. errno stays.
static inline void conn_put(struct conn *c)
{
	if (single_dec(&c->users, conn_sole(c)) &&
	    (atomic_load_explicit(&c->state, memory_order_relaxed) == CONN_CLOSED || c->kept))
		conn_reap(c);
}

// conn_stir tells the set that has asked for marks of what the peer has not posted and
// the kernel does not tell. After the change.
static inline void conn_stir(struct conn *c)
{
	if (atomic_load(&c->asker) && !atomic_exchange(&c->stirred, true))
		atomic_fetch_add(&c->channel->stirs, 1);
}

// conn_more is one use more of one that is in use.
static inline void conn_more(struct conn *c) { single_inc(&c->users, conn_sole(c)); }

// conn_get returns the connection of a descriptor, or NULL. Until conn_put it is
// neither freed nor moved to lanes by others.
static inline struct conn *conn_get(int fd)
{
	for (;;) {
		struct conn *c = files_conn(fd);
		if (!c)
			return NULL;
		single_inc(&c->users, conn_sole(c));
		if (files_conn(fd) == c)
			return c;
		conn_put(c);
	}
}

// conn_below is the usual answer of conn_enter for a connection that has done too little to be
// considered for a lane: true if it is one. Of two threads that count at once one may be
// missed: it only says how busy it is.
static inline bool conn_below(struct conn *c)
{
	uint32_t calls = atomic_load_explicit(&c->calls, memory_order_relaxed) + 1;
	if (c->state != CONN_COUNTING || calls >= config.calls || c->tcp_rx + c->tcp_tx >= config.bytes)
		return false;
	atomic_store_explicit(&c->calls, calls, memory_order_relaxed);
	return true;
}

// conn_enter is run first in each call on a connection, between conn_get and
// conn_put: it counts, and moves the connection on when its time has come. True: the
// call goes to stream.c; false: to the kernel.
bool conn_enter(struct conn *c, int fd);

static inline bool conn_engaged(const struct conn *c)
{
	return atomic_load_explicit((_Atomic uint32_t *)(uintptr_t)&c->state, memory_order_acquire) == CONN_ENGAGED;
}

// conn_decided is conn_engaged, after another thread that is engaging it has decided.
bool conn_decided(struct conn *c);

// conn_try_engage moves an attached connection to lanes if the caller is the only one
// of its users: another might sleep on it in the kernel.
void conn_try_engage(struct conn *c, int fd);

// conn_hold enters a process among those that hold it, conn_unhold takes it off.
static inline void conn_hold(struct conn *c, uint64_t seat)
{
	if (seat)
		atomic_fetch_or(&c->holders, seat);
	else
		atomic_fetch_add(&c->many, 1);
}
static inline void conn_unhold(struct conn *c, uint64_t seat)
{
	if (!(atomic_fetch_and(&c->holders, ~seat) & seat))
		atomic_fetch_sub(&c->many, 1);
}

// conn_common: another process holds it too, as we do, or did when it was killed.
bool conn_common(const struct conn *c);
bool conn_shared(const struct conn *c); // and lives

// conn_new tracks a descriptor; it is quietly not tracked when there is no room.
struct conn *conn_new(int fd, enum conn_state state, bool nonblock);
void conn_dup(int from, int to); // fd `to` is now a copy of `from`
void conn_close(int fd, bool real_too);

// conn_stay keeps a connection on TCP from now on: one that has no lane yet for
// ever, one on a lane by conn_return, or a reset if that fails: then false. It takes
// up to 1 s. For whoever takes the descriptor away from us (exec, stdio, passing).
bool conn_stay(struct conn *c, int fd, enum reason why);

// conn_try_stay is conn_stay that leaves a connection on its lane rather than reset it.
bool conn_try_stay(struct conn *c, int fd, enum reason why);

// conn_quit is conn_stay, after which the lane's memory is not needed either, unless
// somebody is inside a call on the connection. The caller counts as a user.
void conn_quit(struct conn *c, int fd, enum reason why);

// conn_stays says that a connection has been given up for lanes: in the log, or,
// where they are required, by a reset.
void conn_stays(struct conn *c, int fd, enum reason why);

// conn_log says something of a connection, which begins with its ends, if EXN_DS_VERBOSE is set.
void conn_log(const struct conn *c, const char *format, ...) __attribute__((format(printf, 2, 3)));

// conn_halt is the first step of conn_stay, for whoever takes several connections
// back: both ends of one may be among them, and what the first to go has written
// could not come by TCP any more.
void conn_halt(struct conn *c, int fd, bool first);

// conn_return takes an engaged connection back to TCP: what is unread on the lane
// is sent again by the peer. False if the peer does not answer within 1 s, or had
// ended before with bytes unread; then it stays on its lane, nothing is lost, and each call looks again.
bool conn_return(struct conn *c, int fd, enum reason why);

// conn_rest is that for as long as programs have it that inherit it (heirs.c). Those who started them
// began at clock_ns begun to take connections back: the longer that took, the longer it rests.
// conn_rests begins such a time, conn_resume ends it if it is over.
bool conn_rest(struct conn *c, int fd, uint64_t begun);
void conn_rests(struct conn *c, uint64_t begun);
void conn_resume(struct conn *c, int fd);

// conn_lowat sets the kernel's SO_RCVLOWAT. While a connection is engaged the kernel has to tell of
// each byte, since the program's counts those of the lane too (receive.c).
void conn_lowat(const struct conn *c, int fd, uint32_t bytes);

// conn_options reads an option of SOL_SOCKET that our calls must honour, after
// it was set; -1: all of them.
void conn_options(struct conn *c, int fd, int option);

// conn_asked: a non-blocking read has found nothing, or something. Who reads again and again
// needs nobody to tell him.
static inline void conn_asked(struct conn *c, bool vain)
{
	enum { MANY = 64 };
	uint8_t n = vain ? c->vain + 1 : 0;
	atomic_store_explicit(&c->vain, n, memory_order_relaxed);
	if (n == MANY)
		atomic_store_explicit(&c->watched, true, memory_order_relaxed);
}

// conn_tcp_state asks the kernel. Its header says TCP_ESTABLISHED and so on, but
// <netinet/tcp.h> and <linux/tcp.h> exclude each other.
enum tcp_state { ESTABLISHED = 1, FIN_WAIT1 = 4, FIN_WAIT2 = 5, CLOSED = 7, LAST_ACK = 9, CLOSING = 11 };
enum tcp_state conn_tcp_state(int fd);

// conn_fin_came tells FIN from our own shutdown of the read side, which poll does not.
bool conn_fin_came(int fd);

// conn_reset aborts: ECONNRESET here and at the peer.
void conn_reset(struct conn *c, int fd, enum reason why);

// conn_break is that for whoever walks over connections (number_pin).
void conn_break(struct conn *c, int fd, enum reason why);

// conn_heed gives back, on all connections of this process, what peers ask for that
// return to TCP, and conn_kicked is what a kick is for. Both are safe in a signal handler.
void conn_heed(void);
void conn_kicked(void);
void conn_unkickable(void); // from now on a kick does nothing, if only we have a handler

// conn_take_lane resets our half of the lane and says so; conn_leave_lane lets go of it.
void conn_take_lane(struct conn *c, struct channel *ch, uint32_t lane, uint32_t generation);
void conn_leave_lane(struct conn *c);

#endif
