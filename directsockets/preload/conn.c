// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
//	NEW ─connect/accept─► COUNTING ─threshold─► (rendezvous.c) ─► ATTACHED
//	ATTACHED ──no other call of the family is on it──► ENGAGED
//	ENGAGED, ATTACHED ──a program inherits it──► RESTING ──it has ended──► ATTACHED
//	any ──reason──► OFF          any ──last close──► CLOSED ──► FREE
//
// engage.c has the steps to ENGAGED and ATTACHED.
#include "real.h"

#include "conn.h"

#include <errno.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "clock.h"
#include "doorbell.h"
#include "epset.h"
#include "far.h"
#include "number.h"
#include "passing.h"
#include "process.h"
#include "stream.h"
#include "tuple.h"
#include "worth.h"

_Atomic int conn_attached;
_Atomic enum reason conn_never;

// lost: the descriptor was closed by a call that no hook saw, or its number would
// not be given out again. The kernel has told the peer.
static void lost(int fd)
{
	struct conn *c = conn_get(fd);
	if (!c)
		return;
	files_clear(fd);
	if (atomic_fetch_sub(&c->refs, 1) == 1) {
		uint32_t was = atomic_exchange(&c->state, CONN_CLOSED);
		if (was == CONN_ATTACHED && c->owner == process_id())
			atomic_fetch_sub(&conn_attached, 1);
		rendezvous_closed(c, was);
	}
	conn_put(c);
}

struct conn *conn_new(int fd, enum conn_state state, bool nonblock)
{
	if (config.off || fd < 0 || fd >= FILES_MAX || process_borrowed())
		return NULL;
	files_begin();
	struct conn *c = family_conn_new();
	if (!c) {
		files_end();
		return NULL;
	}
	atomic_init(&c->nonblock, nonblock);
	atomic_init(&c->number, (uint32_t)fd + 1);
	if (conn_never != REASON_NONE) {
		c->reason = conn_never;
		state = CONN_OFF;
	}
	if (files_conn(fd))
		lost(fd);
	atomic_store_explicit(&c->state, state, memory_order_relaxed); // entering it in the table publishes it
	files_set_conn(fd, c);
	files_end();
	return c;
}

void conn_take_lane(struct conn *c, struct channel *ch, uint32_t lane, uint32_t generation)
{
	struct lane_ctl *own = lane_ctl(&ch->own, lane);
	c->channel = ch;
	c->lane = lane;
	c->generation = generation;
	c->own = own;
	c->peer = lane_ctl(&ch->peer, lane);
	lane_tx_reset(&c->tx, &ch->pool, lane);
	lane_rx_reset(&c->rx, &ch->own, &ch->peer, lane);
	c->marked = 0;
	own->closed = own->shut = own->consent = own->go_back = own->rx_waiters = own->tx_waiters = own->slots_due = own->window_due = 0;
	atomic_store_explicit(&own->generation, generation, memory_order_release);
	atomic_fetch_add(&ch->lanes_used, 1);
}

void conn_leave_lane(struct conn *c)
{
	struct channel *ch = c->channel;
	struct lane_ctl *own = c->own;
	// What another process attached and nobody engaged is not mapped here, nor what a child of ours did.
	if (!ch || !own || (!c->engaged && c->owner != process_id()) || !family_channel_known(ch))
		return;
	c->own = NULL;
	channel_brought(ch);
	pool_left(&ch->pool, c->lane);
	atomic_store(&own->generation, 0);
	if ((c->lane & 1) == (ch->inviter ? 0u : 1u))
		channel_unpick(ch, c->lane);
	if (atomic_fetch_sub(&ch->lanes_used, 1) != 1 || ch->owner != process_id())
		return;
	if (atomic_load(&ch->live) == 1 && channel_hung_up(ch))
		channel_kill(ch, REASON_PEER_GONE);
	else if (atomic_load(&ch->live) == 2)
		rendezvous_sweep_due();
}

static void finish(struct conn *c, int fd);

void conn_reap(struct conn *c)
{
	int kept = c->kept, saved = errno;
	if (kept && c->users == 0 && atomic_exchange(&c->kept, 0) == kept) {
		finish(c, kept);
		files_close(kept);
		atomic_fetch_sub(&c->refs, 1);
	}
	if (c->refs == 0 && c->users == 0) {
		conn_leave_lane(c);
		family_conn_free(c);
	}
	errno = saved;
}

enum tcp_state conn_tcp_state(int fd)
{
	struct tcp_info t;
	socklen_t n = sizeof t;
	memset(&t, 0, sizeof t);
	return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) == 0 ? t.tcpi_state : CLOSED;
}

bool conn_fin_came(int fd)
{
	enum tcp_state s = conn_tcp_state(fd);
	return s != ESTABLISHED && s != FIN_WAIT1 && s != FIN_WAIT2;
}

void conn_stays(struct conn *c, int fd, enum reason why)
{
	char refused[64];
	const char *words = why == REASON_PLAIN ? far_words : reason_names[why];
	if (why == REASON_REFUSED && c->refusal) {
		snprintf(refused, sizeof refused, "%.30s: %.30s", reason_names[why], reason_names[c->refusal]);
		words = refused;
	}
	if (config.verbose || config.require)
		tuple_know(c, fd);
	if (!config.require || why == REASON_PEER_GONE) {
		conn_log(c, "stays on TCP: %s", words);
		return;
	}
	char text[TUPLE_TEXT];
	tuple_text(text, c);
	config_say("%s is reset, for it stays on TCP and EXN_DS_REQUIRE is set: %s", text, words);
	conn_break(c, fd, why);
}

void conn_log(const struct conn *c, const char *format, ...)
{
	char text[TUPLE_TEXT], what[256];
	va_list ap;
	if (!config.verbose)
		return;
	va_start(ap, format);
	vsnprintf(what, sizeof what, format, ap);
	va_end(ap);
	tuple_text(text, c);
	config_say("%s %s", text, what);
}

void conn_heed(void)
{
	for (int fd = 0; fd < files_top(); fd++) {
		struct conn *c = files_conn(fd);
		if (!c || c->state != CONN_ENGAGED || !(c = conn_get(fd)))
			continue;
		int pin = conn_engaged(c) && stream_heeds(c) ? number_pin(c, fd) : -1;
		if (pin >= 0) {
			stream_heed(c, pin);
			number_unpin(pin, fd);
		}
		conn_put(c);
	}
}

static void late(struct conn *c, int fd);

bool conn_enter(struct conn *c, int fd)
{
	uint32_t state = atomic_load(&c->state);
	if (state == CONN_ENGAGED && __builtin_expect(!c->overdue, 1))
		return true;
	if (state == CONN_ENGAGED) {
		late(c, fd);
		return conn_engaged(c);
	}
	if (state == CONN_OFF || state == CONN_LISTENER || conn_below(c))
		return false;
	uint32_t calls = atomic_load_explicit(&c->calls, memory_order_relaxed) + 1;
	atomic_store_explicit(&c->calls, calls, memory_order_relaxed);
	switch (state) {
	case CONN_COUNTING:
	case CONN_OFFERED:
	case CONN_ATTACHING:
		rendezvous_step(c, fd);
		break;
	case CONN_RESTING:
		conn_resume(c, fd);
		break;
	}
	if (c->state == CONN_ATTACHED)
		conn_try_engage(c, fd);
	return conn_decided(c);
}

void conn_dup(int from, int to)
{
	struct conn *c = conn_get(from);
	if (!c)
		return;
	if (to >= FILES_MAX) {
		conn_stay(c, from, REASON_FILES);
	} else {
		files_begin();
		atomic_fetch_add(&c->refs, 1);
		files_set_conn(to, c);
		files_end();
	}
	conn_put(c);
}

// many_others counts those without a seat, of which we are one or not.
static int many_others(const struct conn *c) { return (int)c->many - !(c->holders & family_own()); }

bool conn_common(const struct conn *c) { return many_others(c) > 0 || c->holders & ~family_own(); }

bool conn_shared(const struct conn *c)
{
	uint64_t others = c->holders & ~family_own();
	return many_others(c) > 0 || (others && family_live(others));
}

static void finish(struct conn *c, int fd)
{
	uint32_t was = atomic_load(&c->state);
	if (was == CONN_ENGAGED)
		stream_close(c, fd);
	was = atomic_exchange(&c->state, CONN_CLOSED);
	passing_closed(c, fd, was);
	if (was != CONN_OFF)
		worth_ended(c);
	if ((was == CONN_ATTACHED || was == CONN_ENGAGING) && c->owner == process_id())
		atomic_fetch_sub(&conn_attached, 1);
	rendezvous_closed(c, was);
}

// unheld: all that hold it are dead, and it is for the caller to give back their references.
static bool unheld(struct conn *c) { return c->many == 0 && !family_live(c->holders) && atomic_exchange(&c->refs, 0) > 0; }

// bury frees the connections that were left to children which were killed. It looks at
// all when twice as many have been left as lived the last time.
static void bury(void)
{
	static _Atomic uint32_t left, enough = 16;
	if (atomic_fetch_add(&left, 1) + 1 < enough || family_own() == 0)
		return;
	uint32_t theirs = 0;
	for (struct conn *c = NULL; (c = family_conn_next(c)) != NULL;) {
		if (c->refs == 0 || c->holders == 0 || c->holders & family_own() || c->state == CONN_NEW)
			continue;
		if (unheld(c)) {
			atomic_fetch_add(&c->users, 1);
			atomic_store(&c->state, CONN_CLOSED);
			conn_leave_lane(c); // also if it died inside a call
			conn_put(c);
		} else {
			theirs++;
		}
	}
	left = 0;
	enough = 16 + 2 * theirs;
}

void conn_close(int fd, bool real_too)
{
	struct conn *c = conn_get(fd);
	if (!c) {
		if (real_too)
			real.close(fd);
		return;
	}
	int saved = errno;
	conn_decided(c); // fd is in use meanwhile
	files_begin();
	files_clear(fd);
	int copy = c->refs > 1 ? number_here(c) : -1;
	if (epset_closed(c, fd, copy))
		conn_stay(c, copy, REASON_NESTED);
	if (c->number == (uint32_t)fd + 1 && family_made(c))
		c->number = (uint32_t)(copy + 1);
	bool last = atomic_fetch_sub(&c->refs, 1) == 1, left = !last && copy < 0;
	files_end();
	if (last && c->sole && conn_engaged(c) && c->users > 1) {
		// As with a file, the calls that go on are its last users: all in this process,
		// for the number of the copy means nothing in another.
		atomic_fetch_add(&c->refs, 1);
		int kept = files_copy(fd);
		c->kept = kept < 0 ? 0 : kept;
		last = kept < 0;
	}
	// Of two processes that let go of it at once the later finds that the rest is dead: each
	// has given back its own reference and its hold before it looks.
	bool common = left && conn_common(c);
	if (common)
		conn_unhold(c, family_own());
	if (last || (common && conn_engaged(c) && unheld(c))) {
		finish(c, fd);
	} else if (common) {
		rendezvous_release(c);
		bury();
	}
	conn_put(c);
	rendezvous_sweep();
	errno = saved;
	if (real_too)
		real.close(fd);
}

void conn_lowat(const struct conn *c, int fd, uint32_t bytes)
{
	int low = (int)bytes;
	if (c->rcvlowat > 1)
		real.setsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, sizeof low);
}

enum { REST_MOST = 60 }; // seconds

void conn_rests(struct conn *c, uint64_t begun)
{
	enum { COST = 50 }; // the way back takes no more of the time than one part in so many
	uint64_t now = clock_ns(), rest = COST * (now - begun), most = REST_MOST * 1000000000ull;
	c->resting_since = now;
	c->resting_until = now + (rest < most ? rest : most);
}

static void is_back(struct conn *c, enum reason why, enum conn_state to)
{
	epset_disengaged(c);
	uint32_t is = CONN_ENGAGED;
	if (atomic_compare_exchange_strong(&c->state, &is, to))
		conn_log(c, "is back on TCP: %s", reason_names[why]);
}

static bool back(struct conn *c, int fd, enum reason why, enum conn_state to)
{
	atomic_store(&c->reason, why);
	int pin = number_pin(c, fd);
	if (pin < 0)
		return true; // closed: there is nothing to take back
	bool left = !c->dead && stream_back(c, pin); // a reset is known to us alone
	if (left)
		conn_lowat(c, pin, c->rcvlowat);
	else if (!c->dead)
		c->overdue = true;
	number_unpin(pin, fd); // sets would have it as long as it is open
	if (!left)
		return false;
	is_back(c, why, to);
	return true;
}

// late takes back what could not be before, for its peer did not answer then, and does now.
static void late(struct conn *c, int fd)
{
	if (c->dead || !stream_is_back(c, fd))
		return;
	conn_lowat(c, fd, c->rcvlowat);
	is_back(c, c->reason, c->reason == REASON_SHARED && !c->exposed ? CONN_RESTING : CONN_OFF);
}

bool conn_return(struct conn *c, int fd, enum reason why)
{
	if (!back(c, fd, why, CONN_OFF))
		return false;
	uint32_t state = atomic_load(&c->state);
	if (state == CONN_RESTING || state == CONN_ATTACHED) // another thread has taken it back, for a while
		rendezvous_stay(c, fd, why);
	return true;
}

bool conn_rest(struct conn *c, int fd, uint64_t begun)
{
	c->resting_until = clock_ns() + REST_MOST * 1000000000ull; // until it is known; but we may be killed
	bool rests = back(c, fd, REASON_SHARED, CONN_RESTING);
	conn_rests(c, begun);
	return rests;
}

void conn_halt(struct conn *c, int fd, bool first)
{
	int pin = first && conn_engaged(c) ? number_pin(c, fd) : -1;
	if (pin < 0)
		return;
	stream_halt(c, pin);
	number_unpin(pin, fd);
}

void conn_break(struct conn *c, int fd, enum reason why)
{
	int pin = number_pin(c, fd);
	if (pin < 0)
		return;
	conn_reset(c, pin, why);
	number_unpin(pin, fd);
}

bool conn_stay(struct conn *c, int fd, enum reason why)
{
	if (conn_decided(c)) {
		if (conn_return(c, fd, why))
			return true;
		conn_break(c, fd, why);
		return false;
	}
	uint32_t state = atomic_load(&c->state);
	if (state == CONN_OFF || state == CONN_LISTENER || state == CONN_CLOSED)
		return true;
	rendezvous_stay(c, fd, why);
	return true;
}

bool conn_try_stay(struct conn *c, int fd, enum reason why)
{
	return conn_engaged(c) ? conn_return(c, fd, why) : conn_stay(c, fd, why);
}

void conn_quit(struct conn *c, int fd, enum reason why)
{
	if (conn_stay(c, fd, why) && c->users == 1 && !conn_engaged(c)) // else it is being closed, and conn_put ends it
		conn_leave_lane(c);
}

static uint64_t timeout_of(int fd, int option)
{
	struct timeval t = {0};
	socklen_t n = sizeof t;
	if (real.getsockopt(fd, SOL_SOCKET, option, &t, &n) < 0)
		return 0;
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u;
}

void conn_options(struct conn *c, int fd, int option)
{
	enum { RCVTIMEO_NEW = 66, SNDTIMEO_NEW = 67 };
	int low;
	struct linger l;
	socklen_t n;
	bool all = option == -1;
	if (all || option == SO_RCVTIMEO || option == RCVTIMEO_NEW)
		c->rcvtimeo_ns = timeout_of(fd, SO_RCVTIMEO);
	if (all || option == SO_SNDTIMEO || option == SNDTIMEO_NEW)
		c->sndtimeo_ns = timeout_of(fd, SO_SNDTIMEO);
	n = sizeof low;
	if ((all || option == SO_RCVLOWAT) && real.getsockopt(fd, SOL_SOCKET, SO_RCVLOWAT, &low, &n) == 0 && low > 0) {
		c->rcvlowat = (uint32_t)low;
		if (conn_engaged(c)) {
			conn_lowat(c, fd, 1);
			if ((uint32_t)stream_unread(c, fd) >= c->rcvlowat || load_acquire(&c->peer->shut))
				atomic_fetch_add(&c->lowats, 1);
		}
		conn_stir(c);
	}
	n = sizeof l;
	if ((all || option == SO_LINGER) && real.getsockopt(fd, SOL_SOCKET, SO_LINGER, &l, &n) == 0)
		c->linger_s = l.l_onoff ? l.l_linger : -1;
}

void conn_reset(struct conn *c, int fd, enum reason why)
{
	// Called with or without the locks: each store is safe by itself.
	if (c->dead)
		return;
	int saved = errno, e;
	socklen_t n = sizeof e;
	struct sockaddr none = {.sa_family = AF_UNSPEC};
	conn_log(c, "reset: %s", reason_names[why]); // before anybody can be told, and end
	atomic_store(&c->reason, why);
	atomic_store(&c->error, c->told ? 0 : ECONNRESET); // the kernel may have known before us
	c->dead = true;
	if (c->own)
		atomic_store(&c->own->closed, 1);
	if (why == REASON_PEER_GONE)
		real.shutdown(fd, SHUT_RDWR); // what came before its death stays readable
	else
		real.connect(fd, &none, sizeof none); // sends RST at once
	real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n); // ours counts
	conn_stir(c);
	if (c->channel && c->peer) {
		doorbell_ring(c, &c->peer->rx_waiters);
		doorbell_ring(c, &c->peer->tx_waiters);
	}
	errno = saved;
}
