// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Each process that opens a TCP socket makes one memory file and maps it
// shared: a table of connections and a table of channels. A forked child
// inherits the mapping at the same address, so pointers into it stay good and
// both processes see one state and one set of locks. The child allocates from
// a new file of its own, so that only one process ever allocates in a table.
// Anyone may free: an entry is free when its state says so.
//
// The file is sealed against changing its size, so it cannot be truncated
// under us. `exn-tun show sockets` reads it (ext-ds.md, "Status").
//
// A process that is killed gives back nothing, so from the first fork on each connection
// knows by their seats who holds it, and a process holds a POSIX lock on the byte of its
// seat in a file of the family, which the kernel takes away with the process. A child gets
// its seat before it is there: until it has the lock, it counts as alive. A seat is given
// out again when its process is dead; a connection that this one still holds is then taken
// to be held until the new process is dead too. Nobody but a process itself takes its seat
// off a connection. Processes without a seat are counted, and live for ever.
//
// A process that dies inside a call leaves the state of that connection unknown:
// whoever takes its lock next (lock.c) resets the connection, and no other.
#include "real.h"

#include "family.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "clock.h"
#include "files.h"
#include "process.h"
#include "sleep.h"
#include "status.h"

struct tables {
	struct status_head head; // ext-ds.md: offset 0
	struct conn conns[FAMILY_CONNS];
	struct channel channels[FAMILY_CHANNELS];
	struct tables *parent; // of the process that forked us
	_Atomic uint32_t channels_top; // those above were never used, and their pages not touched
	_Atomic bool complained; // of the first process of the family, for family_complains
};

enum { SEATS = 64, SEAT_FREE = 0, SEAT_GIVEN, SEAT_TAKEN };

static struct tables *tables;
static int memory = -1;
static _Atomic(_Atomic uint32_t *) seats; // shared, as is what follows
static int seat_file = -1;
static _Atomic int seats_begun; // by a thread that is not done, or failed; or they are not ours to make
static _Atomic uint64_t own; // our seat
static _Atomic uint32_t next_conn; // where a free one may be; a hint
static _Atomic uint32_t conns_top; // those above were never used
static _Atomic int failed;
static _Atomic int making; // the thread that makes the tables

enum { MAKING_NS = 1000 * 1000 * 1000 }; // far more than that takes
static _Atomic uint32_t serials;

static uint64_t bit(int seat) { return (uint64_t)1 << seat; }

bool family_init(void)
{
	if (tables && memory >= 0)
		return true;
	if (atomic_load(&failed))
		return false;
	// Another thread may be at it, which takes as long as the scheduler lets it: a server
	// or client of many threads opens its first sockets at once. Or this one is, below
	// a signal handler; or that one's handler waits for us: then this socket is not tracked.
	int me = real_gettid(), other = 0;
	for (uint64_t begin = clock_ns(); !atomic_compare_exchange_strong(&making, &other, me); other = 0) {
		if (other == me || clock_ns() - begin > MAKING_NS)
			return false;
		sched_yield();
	}
	bool ok = tables && memory >= 0;
	if (!ok) {
		int fd = files_memory("exn-ds-family", sizeof(struct tables));
		void *p = MAP_FAILED;
		if (fd >= 0)
			p = mmap(NULL, sizeof(struct tables), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
		if (p != MAP_FAILED) {
			struct tables *t = p;
			t->parent = tables;
			status_fill(&t->head, offsetof(struct tables, conns), sizeof(struct conn), FAMILY_CONNS);
			memory = fd;
			tables = t;
			ok = true;
		} else {
			if (fd >= 0)
				files_close(fd);
			atomic_store(&failed, 1);
		}
	}
	atomic_store(&making, 0);
	config_warn();
	return ok;
}

void family_child(void)
{
	if (memory >= 0)
		files_close(memory);
	memory = -1;
	next_conn = conns_top = 0;
	failed = 0;
	making = 0; // that thread is not here
}

bool family_complains(void)
{
	struct tables *t = tables;
	while (t && t->parent)
		t = t->parent;
	return t && !atomic_exchange(&t->complained, true);
}

static void raise_to(_Atomic uint32_t *top, uint32_t end)
{
	for (uint32_t is = *top; is < end && !atomic_compare_exchange_weak(top, &is, end);)
		;
}

struct conn *family_conn_new(void)
{
	if (!family_init())
		return NULL;
	struct tables *t = tables;
	// Lowest free first keeps the touched part of the table small.
	for (uint32_t k = 0, i = atomic_load_explicit(&next_conn, memory_order_relaxed); k < FAMILY_CONNS; k++, i++) {
		struct conn *c = &t->conns[i % FAMILY_CONNS];
		uint32_t is = CONN_FREE;
		if (atomic_load_explicit(&c->state, memory_order_relaxed) == CONN_FREE &&
		    atomic_compare_exchange_strong(&c->state, &is, CONN_NEW)) {
			memset((char *)c + offsetof(struct conn, reason), 0, sizeof *c - offsetof(struct conn, reason));
			// Nobody else knows it yet: no order is needed.
			atomic_init(&c->refs, 1);
			atomic_init(&c->sole, true);
			atomic_init(&c->holders, own);
			atomic_init(&c->many, own == 0);
			atomic_init(&c->rcvlowat, 1);
			atomic_init(&c->linger_s, -1);
			atomic_store_explicit(&next_conn, i + 1, memory_order_relaxed);
			raise_to(&conns_top, (uint32_t)(c - t->conns) + 1);
			return c;
		}
	}
	return NULL;
}

void family_conn_free(struct conn *c)
{
	struct tables *t = tables;
	uint32_t is = CONN_CLOSED;
	if (!atomic_compare_exchange_strong(&c->state, &is, CONN_FREE))
		return;
	if (t && c >= t->conns && c < t->conns + FAMILY_CONNS) {
		uint32_t i = (uint32_t)(c - t->conns);
		if (i < atomic_load_explicit(&next_conn, memory_order_relaxed))
			atomic_store_explicit(&next_conn, i, memory_order_relaxed);
	}
}

struct conn *family_conn_next(struct conn *after)
{
	struct tables *t = tables;
	if (!t || memory < 0)
		return NULL;
	for (struct conn *c = after ? after + 1 : t->conns; c < t->conns + conns_top; c++) {
		if (atomic_load_explicit(&c->state, memory_order_acquire) != CONN_FREE)
			return c;
	}
	return NULL;
}

bool family_made(const struct conn *c)
{
	struct tables *t = tables;
	return t && memory >= 0 && c >= t->conns && c < t->conns + FAMILY_CONNS;
}

// seats_made: the family has seats, and this process, if it made them, the first.
static bool seats_made(void)
{
	if (seats || atomic_exchange(&seats_begun, 1))
		return seats != NULL;
	seat_file = files_memory("exn-ds-seats", SEATS * sizeof *seats);
	void *p = MAP_FAILED;
	if (seat_file >= 0)
		p = mmap(NULL, SEATS * sizeof *seats, PROT_READ | PROT_WRITE, MAP_SHARED, seat_file, 0);
	if (p == MAP_FAILED) {
		files_close(seat_file);
		return false;
	}
	*(_Atomic uint32_t *)p = SEAT_GIVEN;
	seats = p;
	family_sit(bit(0));
	return true;
}

static struct flock byte_of(int seat)
{
	return (struct flock){.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = seat, .l_len = 1};
}

// seat_dead: who had it has ended. Of ours it says nothing.
static bool seat_dead(int s)
{
	struct flock l = byte_of(s);
	return seats && seats[s] == SEAT_TAKEN && real.fcntl(seat_file, F_GETLK, &l) == 0 && l.l_type == F_UNLCK;
}

uint64_t family_seat(void)
{
	static _Atomic uint32_t next;
	if (!seats_made())
		return 0;
	for (int k = 0; k < SEATS; k++) {
		int s = (int)(atomic_fetch_add(&next, 1) % SEATS); // the one that was left longest ago, as a rule
		uint32_t is = seats[s];
		if ((is == SEAT_FREE || (is == SEAT_TAKEN && bit(s) != own && seat_dead(s))) &&
		    atomic_compare_exchange_strong(&seats[s], &is, SEAT_GIVEN))
			return bit(s);
	}
	return 0;
}

void family_sit(uint64_t seat)
{
	own = seat;
	if (!seat)
		return;
	int s = __builtin_ctzll(seat);
	struct flock l = byte_of(s);
	if (real.fcntl(seat_file, F_SETLK, &l) == 0)
		seats[s] = SEAT_TAKEN;
}

void family_cloned(void)
{
	own = 0;
	if (tables)
		seats_begun = 1;
}

void family_unseat(uint64_t seat)
{
	if (seat)
		seats[__builtin_ctzll(seat)] = SEAT_FREE;
}

uint64_t family_own(void) { return own; }

bool family_live(uint64_t of)
{
	if (of & own)
		return true;
	for (; of; of &= of - 1) {
		if (!seat_dead(__builtin_ctzll(of)))
			return true;
	}
	return false;
}

void family_kick(uint64_t of)
{
	for (; seats && of; of &= of - 1) {
		struct flock l = byte_of(__builtin_ctzll(of));
		if (real.fcntl(seat_file, F_GETLK, &l) == 0 && l.l_type != F_UNLCK && l.l_pid > 0)
			sleep_kick(l.l_pid);
	}
}

bool family_channel_known(const struct channel *ch)
{
	for (struct tables *t = tables; t; t = t->parent)
		if (ch >= t->channels && ch < t->channels + FAMILY_CHANNELS)
			return true;
	return false;
}

struct channel *family_channel_new(void)
{
	if (!family_init())
		return NULL;
	for (int i = 0; i < FAMILY_CHANNELS; i++) {
		struct channel *ch = &tables->channels[i];
		uint32_t is = 0;
		if (atomic_compare_exchange_strong(&ch->live, &is, 2)) {
			memset((char *)ch + sizeof ch->live, 0, offsetof(struct channel, pool) - sizeof ch->live);
			lock_init(&ch->ctl_lock);
			ch->ctl = ch->process = -1;
			ch->owner = process_id();
			ch->serial = atomic_fetch_add(&serials, 1) + 1;
			for (int w = 0; w < LANE_WAITERS; w++)
				ch->ring_own[w] = ch->ring_peer[w] = -1;
			raise_to(&tables->channels_top, (uint32_t)i + 1); // before it is live
			return ch;
		}
	}
	return NULL;
}

struct channel *family_channel_next(struct channel *after)
{
	for (struct tables *t = tables; t; t = t->parent) {
		struct channel *ch = t->channels;
		if (after) {
			if (after < t->channels || after >= t->channels + FAMILY_CHANNELS)
				continue;
			ch = after + 1;
			after = NULL;
		}
		for (; ch < t->channels + t->channels_top; ch++)
			if (atomic_load_explicit(&ch->live, memory_order_acquire) == 1)
				return ch;
	}
	return NULL;
}

uint64_t family_spent(void)
{
	uint64_t all = 0;
	for (struct tables *t = tables; t; t = t->parent)
		for (uint32_t i = 0; i < t->channels_top; i++)
			if (t->channels[i].live)
				all += t->channels[i].pool.spent;
	return all;
}

struct channel *family_channel_dead(void)
{
	for (uint32_t i = 0; tables && memory >= 0 && i < tables->channels_top; i++) {
		struct channel *ch = &tables->channels[i];
		if (atomic_load_explicit(&ch->live, memory_order_relaxed) == 2 && ch->serial && ch->lanes_used == 0)
			return ch;
	}
	return NULL;
}

const char *const reason_names[REASON_COUNT] = {
	"none", "setting", "directory", "no peer in this fabric directory", "address", "proof", "version",
	"memory", "files", "lanes", "waiters", "uncounted bytes", "shared between processes", "stdio",
	"option", "nested or inherited epoll set", "peer gone", "tripwire", "hostile memory",
	"process died inside a call", "test", "privilege", "refused by peer",
	"io_uring", "raw system call", "policy", "short connections", "nat", "unread", "seccomp",
	"peer without the library",
};
const char *const state_names[] = {
	"free", "new", "listener", "counting", "offered", "attaching", "attached", "engaging", "engaged", "tcp", "closed", "resting",
};
