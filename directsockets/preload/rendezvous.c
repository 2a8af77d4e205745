// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// In the fabric directory's subdirectory "ds" each process that has something
// to upgrade has a listener, a SEQPACKET socket p-PID-RANDOM, and each
// connection that looks for its peer an offer, a symbolic link
//
//	o-NETNS-LOCAL-REMOTE  ->  p-PID-RANDOM:INODE
//
// named by its own view of the connection. A connection looks for that of the other's view: with the
// ends exchanged, or with those that exn-tun bridge tells once it has seen an offer of either (home.h). If there
// is none, it makes its own and looks once more. So of two that come at the same time at least one sees the other. Who
// sees the other's offer connects to its listener (once per pair of processes) and sends ATTACH with a
// lane and the proof; the other checks, proves itself and answers.
//
//	COUNTING ──threshold──► OFFERED ──ATTACH came, proof good──► ATTACHED
//	    ▲  └─peer's offer found──► ATTACHING ──ATTACH_OK───────────┘
//	    └────1 s without an answer────┘
//
// An end that will not take a lane, by a policy or since the other is of another version, leaves a refusal where the
// other looks for its offer. That reads it before it makes one of its own, or when that has expired.
//
// If both sent ATTACH, the one of the end with the lower address wins; the loser drops its own and answers.
//
// Nobody waits: there is no thread, the steps happen inside the program's own socket calls, one every few
// calls (`due`), with a longer pause after each failure, so that a plain peer costs a handful of system calls in all. What came
// from a peer any call may handle, for all connections (`progress`). Offers older than 1 s are removed by whoever finds them.
//
// One lock serialises this file inside a process. Who finds it taken goes on with TCP and tries at
// the next step; who gives something up waits for it, but not for ever, since it may be a handler
// that has interrupted who has it, or that one may have left by longjmp.
#include "real.h"

#include "rendezvous.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "board.h"
#include "budget.h"
#include "channel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "epset.h"
#include "far.h"
#include "files.h"
#include "lock.h"
#include "offer.h"
#include "place.h"
#include "presence.h"
#include "process.h"
#include "proof.h"
#include "tuple.h"
#include "vouch.h"
#include "worth.h"

#define OFFER_NS 1000000000ull // an offer older than this has expired; DIRECTORY_OFFER_S is more
enum {
	STEP = 8,         // calls between two looks, at first
	OFFERS_MOST = 6,  // then the peer is taken for a plain one;
	OFFERS_FEW = 3,   // so many with EXN_DS_REQUIRE, which wants to be told soon
	ASKING_MOST = 64, // on a channel and not answered: the control queues, of some 280, never fill
};

_Atomic int rendezvous_waiting;
static struct lock busy;
_Atomic int rendezvous_held;

static void waiting(struct conn *c, enum conn_state to)
{
	uint32_t was = atomic_load(&c->state);
	do {
		if (was == CONN_CLOSED)
			return;
	} while (!atomic_compare_exchange_weak(&c->state, &was, to));
	bool before = was == CONN_OFFERED || was == CONN_ATTACHING;
	bool now = to == CONN_OFFERED || to == CONN_ATTACHING;
	if (before != now)
		atomic_fetch_add(&rendezvous_waiting, now ? 1 : -1);
	if (was != to && (was == CONN_ATTACHED || to == CONN_ATTACHED))
		atomic_fetch_add(&conn_attached, to == CONN_ATTACHED ? 1 : -1);
	if (to == CONN_ATTACHED)
		c->due = 0;
}

static void stay(struct conn *c, int fd, enum reason why)
{
	atomic_store(&c->reason, why);
	waiting(c, CONN_OFF);
	conn_stays(c, fd, why);
}

// refused keeps a connection on TCP whose peer has said that it does.
static void refused(struct conn *c, int fd, enum reason why)
{
	offer_remove(c);
	conn_leave_lane(c);
	c->channel = NULL;
	c->refusal = (uint8_t)why;
	stay(c, fd, why == REASON_VERSION ? why : REASON_REFUSED);
}

// refuse keeps a connection on TCP and has the peer know, if it looks for us.
static void refuse(struct conn *c, int fd, enum reason why)
{
	offer_remove(c);
	offer_refuse(c, why);
	stay(c, fd, why);
}

static void later(struct conn *c, int fd, enum reason why)
{
	if (why == REASON_NO_PEER && !c->other.local_port)
		why = REASON_NOT_LOCAL; // nobody knows of a translation, and so it stays
	else if (why == REASON_NO_PEER && !c->peer_net && proof_elsewhere(&c->other, c->net) && conn_tcp_state(fd) == ESTABLISHED)
		why = REASON_NAT;
	else if (why == REASON_NO_PEER)
		why = !c->offers ? far_missing(c, fd) : c->reason == REASON_PLAIN ? REASON_PLAIN : REASON_NO_PEER;
	if (why == REASON_NAT || why == REASON_NOT_LOCAL || ++c->offers >= (config.require ? OFFERS_FEW : OFFERS_MOST)) {
		stay(c, fd, why);
		return;
	}
	atomic_store(&c->reason, why);
	c->due = c->calls + (config.require ? STEP : (uint64_t)STEP << (3 * c->offers));
	waiting(c, CONN_COUNTING);
}

static void join(struct conn *c, int fd, const char *peer);

// must_wait: no connection may ask now, for HELLO or the answers to others have yet to come.
static bool must_wait(const struct channel *ch) { return !ch->peer.base || ch->asking == ASKING_MOST; }

static void ask(struct conn *c, int fd)
{
	struct channel *ch = c->channel;
	uint32_t generation;
	if (atomic_load(&ch->live) != 1 || c->own)
		return;
	if (must_wait(ch)) {
		ch->wanted = true;
		return;
	}
	int lane = channel_pick(ch, &generation);
	if (lane < 0) { // others were faster
		join(c, fd, ch->name);
		return;
	}
	if (!budget_lane(ch, (uint32_t)lane)) {
		channel_unpick(ch, (uint32_t)lane);
		c->channel = NULL;
		stay(c, fd, REASON_MEMORY);
		return;
	}
	conn_take_lane(c, ch, (uint32_t)lane, generation);
	*place_on(ch, (uint32_t)lane) = fd;
	struct message m = {
		.kind = MESSAGE_ATTACH,
		.version = LANE_VERSION,
		.lane = (uint32_t)lane,
		.generation = generation,
		.ino = c->ino,
		.peer_ino = c->peer_ino,
		.tuple = c->tuple,
	};
	enum reason why = vouch_send(c, fd, ch, &m);
	ch->asking += why == REASON_NONE;
	if (why != REASON_NONE) {
		conn_leave_lane(c);
		later(c, fd, why);
	}
}

// join asks for a lane on a channel to the peer.
static void join(struct conn *c, int fd, const char *peer)
{
	enum reason why = REASON_NONE;
	struct channel *ch = channel_to(peer, &why);
	c->channel = ch;
	if (ch) {
		waiting(c, CONN_ATTACHING);
		ask(c, fd);
	} else if (why == REASON_LANES) {
		stay(c, fd, why);
	} else {
		later(c, fd, why);
	}
}

static void begin(struct conn *c, int fd, const char *peer, uint64_t ino)
{
	offer_remove(c);
	c->peer_ino = ino;
	c->offered_ns = clock_ns();
	join(c, fd, peer);
}

static void first(struct conn *c, int fd)
{
	char peer[64];
	uint64_t ino;
	if (!worth_now(c, fd))
		return;
	channel_look();
	enum reason why = tuple_identify(c, fd);
	if (why == REASON_NO_PEER) { // not connected yet
		c->due = c->calls + STEP;
		return;
	}
	if (why == REASON_POLICY) {
		refuse(c, fd, why);
		return;
	}
	if (why == REASON_NONE && !presence_ready())
		why = REASON_DIRECTORY;
	if (why != REASON_NONE) {
		stay(c, fd, why);
		return;
	}
	c->owner = process_id();
	c->offered_ns = clock_ns();
	c->offered_calls = c->calls;
	c->due = c->calls + 1;
	*place_of(c->ino) = fd;
	enum reason no;
	bool found = offer_look(c, peer, &ino, &no); // then we need none of our own
	if (!found && no == REASON_NONE && !offer_make(c, presence_name) && errno == ENOENT) { // the directory was removed: make it anew
		presence_forget();
		c->due = c->calls + STEP;
		return;
	}
	if (found || (no == REASON_NONE && offer_look(c, peer, &ino, &no))) {
		begin(c, fd, peer, ino);
	} else if (no != REASON_NONE) {
		refused(c, fd, no);
	} else if (!c->offer_out) {
		stay(c, fd, REASON_DIRECTORY);
	} else if (config.require && !board_met(c->port, c->active) && far_never(c, fd, &why)) {
		offer_remove(c);
		stay(c, fd, why);
	} else {
		if (!c->offers)
			atomic_store(&c->reason, REASON_NONE);
		waiting(c, CONN_OFFERED);
	}
}

// named: c is the one that ATTACH asks for.
static bool named(const struct conn *c, const struct channel *ch, const struct message *m)
{
	(void)ch;
	return (c->state == CONN_OFFERED || c->state == CONN_ATTACHING) && c->ino == m->peer_ino && !conn_shared(c);
}

static void attach(struct channel *ch, const struct message *m, const struct proof *handed)
{
	struct conn *c = place_find(place_of(m->peer_ino), named, ch, m);
	int fd = *place_of(m->peer_ino);
	uint32_t most = ch->own.lanes < ch->peer.lanes ? ch->own.lanes : ch->peer.lanes;
	bool theirs = (m->lane & 1) == (ch->inviter ? 1u : 0u);
	enum reason why;
	bool seen = c && (tuple_equal(&c->other, &m->tuple) || (tuple_translated(c) && tuple_equal(&c->other, &m->tuple)));
	if (!seen || m->lane >= most || !theirs || m->generation == 0 || lane_ctl(&ch->own, m->lane)->generation != 0) {
		vouch_refuse(ch, m, REASON_NO_PEER);
	} else if (c->state == CONN_ATTACHING && c->own && tuple_first(c)) {
		vouch_refuse(ch, m, REASON_NONE); // ours is on its way
	} else if ((why = vouch_why(c, fd, ch, m, handed)) != REASON_NONE) {
		vouch_refuse(ch, m, why);
		conn_leave_lane(c);
		(why == REASON_NO_PEER ? later : stay)(c, fd, why);
	} else if (!budget_lane(ch, m->lane)) {
		vouch_refuse(ch, m, REASON_MEMORY);
		conn_leave_lane(c);
		stay(c, fd, REASON_MEMORY);
	} else {
		offer_remove(c);
		conn_leave_lane(c);
		conn_take_lane(c, ch, m->lane, m->generation);
		c->peer_ino = m->ino;
		struct message ok = {
			.kind = MESSAGE_ATTACH_OK, .version = LANE_VERSION, .lane = m->lane, .generation = m->generation, .ino = c->ino};
		if ((why = vouch_send(c, fd, ch, &ok)) == REASON_NONE) {
			waiting(c, CONN_ATTACHED);
		} else {
			vouch_refuse(ch, m, why); // each ATTACH has an answer, or the peer asks no more
			conn_leave_lane(c);
			later(c, fd, why);
		}
	}
	if (c)
		conn_put(c);
}

// asks: c is the one that the answer is for.
static bool asks(const struct conn *c, const struct channel *ch, const struct message *m)
{
	return c->state == CONN_ATTACHING && c->channel == ch && c->own && c->lane == m->lane && c->generation == m->generation;
}

static void answered(struct channel *ch, const struct message *m, const struct proof *handed)
{
	struct conn *c = place_find(place_on(ch, m->lane), asks, ch, m);
	int fd = *place_on(ch, m->lane);
	ch->asking -= ch->asking > 0;
	if (!c)
		return;
	enum reason why = m->ino == c->peer_ino ? vouch_why(c, fd, ch, m, handed) : REASON_PROOF;
	if (m->kind == MESSAGE_ATTACH_OK && why == REASON_NONE) {
		waiting(c, CONN_ATTACHED);
	} else {
		conn_leave_lane(c);
		if (m->kind == MESSAGE_ATTACH_OK)
			(why == REASON_NO_PEER ? later : stay)(c, fd, why);
		else if (m->reason == REASON_MEMORY || m->reason == REASON_PROOF)
			stay(c, fd, REASON_REFUSED);
		else if (m->reason != REASON_NONE)
			later(c, fd, REASON_REFUSED);
		else
			waiting(c, CONN_OFFERED); // theirs is on its way
	}
	conn_put(c);
}

static void message(struct channel *ch, const struct message *m, const int *fds, int n)
{
	struct proof handed = {n > 0 ? fds[0] : -1, n > 1 ? fds[1] : -1};
	ch->newer = false;
	switch (m->kind) {
	case MESSAGE_ATTACH:
		attach(ch, m, &handed);
		break;
	case MESSAGE_ATTACH_OK:
	case MESSAGE_ATTACH_NO:
		answered(ch, m, &handed);
		break;
	default:
		channel_kill(ch, REASON_HOSTILE);
	}
}

static _Atomic int due; // dead channels without lanes, counted in rendezvous_waiting

void rendezvous_sweep_due(void)
{
	atomic_fetch_add(&due, 1);
	atomic_fetch_add(&rendezvous_waiting, 1);
}

// abandon fails the connections that wait for an answer of a dead channel.
static void abandon(struct channel *ch)
{
	for (int fd = 0; fd < files_top(); fd++) {
		struct conn *c = conn_get(fd);
		if (c && c->state == CONN_ATTACHING && c->channel == ch) {
			c->channel = NULL;
			if (ch->why == REASON_PEER_GONE || ch->why == REASON_PRIVILEGE)
				later(c, fd, ch->why);
			else if (ch->why == REASON_VERSION)
				refuse(c, fd, REASON_VERSION);
			else
				stay(c, fd, ch->why); // no memory: it would be so again
		}
		if (c)
			conn_put(c);
	}
}

static void sweep_channels(void)
{
	atomic_fetch_sub(&rendezvous_waiting, atomic_exchange(&due, 0));
	for (struct channel *ch = family_channel_dead(); ch; ch = family_channel_dead()) {
		abandon(ch);
		channel_free(ch);
	}
}

// ask_all asks for those that had to wait, which may make no call of their own by now.
static void ask_all(struct channel *ch)
{
	ch->wanted = false;
	for (int fd = 0; fd < files_top() && !ch->wanted; fd++) {
		struct conn *c = conn_get(fd);
		if (c && c->state == CONN_ATTACHING && c->channel == ch && c->owner == process_id())
			ask(c, fd);
		if (c)
			conn_put(c);
	}
}

static void progress(void)
{
	enum reason why;
	sweep_channels();
	for (int i = 0; i < 16 && presence_listener >= 0; i++) {
		int s = real.accept4(presence_listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
		if (s < 0)
			break;
		s = files_keep(s);
		if (s >= 0)
			channel_open(s, false, &why);
	}
	for (struct channel *ch = family_channel_next(NULL); ch; ch = family_channel_next(ch))
		if (ch->owner == process_id() && channel_pending(ch)) {
			channel_receive(ch, message);
			if (ch->wanted && !must_wait(ch))
				ask_all(ch);
		}
}

// enter: the lock was free, and the program is not confined, which process_confine says while it has the lock.
static bool enter(void) { return lock_try(&busy, &lock_own) && (!config.off || (lock_give(&busy), false)); }

void rendezvous_sweep(void)
{
	if (!due || !enter())
		return;
	sweep_channels();
	lock_give(&busy);
}

void rendezvous_progress(void)
{
	if (!enter())
		return;
	int saved = errno;
	progress();
	errno = saved;
	lock_give(&busy);
}

bool rendezvous_possible(void)
{
	if (!lock_try(&busy, &lock_own))
		return true; // somebody is at it, so it seems to be
	int saved = errno;
	bool yes = presence_ready();
	errno = saved;
	lock_give(&busy);
	return yes;
}

// expire ends an attempt that nobody has answered, for the true reason if there is one.
static void expire(struct conn *c, int fd)
{
	char peer[64];
	uint64_t ino;
	enum reason no;
	struct channel *ch = c->channel;
	bool version = ch && atomic_load(&ch->live) == 2 && ch->why == REASON_VERSION;
	offer_remove(c);
	conn_leave_lane(c);
	c->channel = NULL;
	if (version)
		refuse(c, fd, REASON_VERSION);
	else if (!offer_look(c, peer, &ino, &no) && no != REASON_NONE)
		refused(c, fd, no);
	else
		later(c, fd, REASON_NO_PEER);
}

void rendezvous_step(struct conn *c, int fd)
{
	if (c->calls < c->due || (c->owner != process_id() && c->state != CONN_COUNTING) || !enter())
		return;
	int saved = errno;
	char peer[64];
	uint64_t ino;
	enum reason no = REASON_NONE;
	switch (c->state) {
	case CONN_COUNTING:
		first(c, fd);
		break;
	case CONN_OFFERED:
	case CONN_ATTACHING:
		// Ever more seldom: a peer that does not come costs a few looks, not one in so many calls.
		c->due = c->calls + 1 + (c->calls - c->offered_calls) / 4;
		progress();
		if (c->state == CONN_ATTACHING)
			ask(c, fd);
		else if (c->state == CONN_OFFERED && tuple_translated(c) && offer_look(c, peer, &ino, &no))
			begin(c, fd, peer, ino); // so its age is asked for after this
		else if (no != REASON_NONE)
			refused(c, fd, no);
		if ((c->state == CONN_OFFERED || c->state == CONN_ATTACHING) && clock_ns() - c->offered_ns > OFFER_NS)
			expire(c, fd);
		break;
	}
	errno = saved;
	lock_give(&busy);
}

void rendezvous_stay(struct conn *c, int fd, enum reason why)
{
	offer_remove(c);
	stay(c, fd, why);
}

void rendezvous_closed(struct conn *c, uint32_t was)
{
	if (c->owner != process_id())
		return;
	if (was == CONN_OFFERED || was == CONN_ATTACHING)
		atomic_fetch_sub(&rendezvous_waiting, 1);
	offer_remove(c);
}

void rendezvous_release(struct conn *c)
{
	if (c->owner != process_id())
		return;
	for (int i = 0; !lock_try(&busy, &lock_own); i++) {
		if (i == 10000)
			return; // then it stays on TCP
		clock_pause();
	}
	rendezvous_drop(c);
	lock_give(&busy);
}

void rendezvous_drop(struct conn *c)
{
	if (c->owner != process_id())
		return;
	switch (c->state) {
	case CONN_OFFERED:
	case CONN_ATTACHING:
	case CONN_ATTACHED:
		offer_remove(c);
		conn_leave_lane(c);
		c->channel = NULL;
		c->due = c->calls + STEP;
		waiting(c, CONN_COUNTING);
	}
}

void rendezvous_child(void)
{
	presence_child();
	rendezvous_waiting = due = 0;
	conn_attached = 0;
	busy = (struct lock){0};
	rendezvous_held = 0;
}

static bool seize(unsigned naps)
{
	int saved = errno;
	bool got;
	for (unsigned i = 0; !(got = lock_try(&busy, &lock_own)) && i < naps; i++)
		clock_nap();
	errno = saved;
	return got;
}

void rendezvous_retire(void)
{
	if (!seize(100))
		return; // others find out by themselves that nobody listens there
	presence_retire();
	lock_give(&busy);
}

bool rendezvous_hold(void)
{
	rendezvous_held++;
	return seize(10000);
}

void rendezvous_forget(void)
{
	if (due)
		sweep_channels();
	presence_forget();
}

void rendezvous_unhold(bool got)
{
	rendezvous_held--;
	if (got)
		lock_give(&busy);
}
