// SPDX-License-Identifier: Apache-2.0
//
// Memory that a process shares with the children it forks: connections and
// channels live in it, so that both go on using an inherited connection.
//
// What it is not: it is never shared with peers. A family trusts itself.
#ifndef FAMILY_H
#define FAMILY_H

#include <stdbool.h>
#include <stdint.h>

#include "lane_shm.h"
#include "lock.h"
#include "spin.h"

enum {
	FAMILY_CONNS = 16384,  // connections known at once, per allocating process
	FAMILY_CHANNELS = 256, // channels, likewise
};

// A tuple is both ends of a TCP connection as one of them sees it; IPv4 is
// kept as a mapped IPv6 address.
struct tuple {
	uint8_t local[16], remote[16];
	uint16_t local_port, remote_port; // network order
	uint8_t v6;                       // the socket is AF_INET6
	uint8_t pad[3];
};

// Connection states, as published by status.c; see ext-ds.md.
enum conn_state {
	CONN_FREE = 0,
	CONN_NEW,       // a TCP socket that is not connected as far as we know
	CONN_LISTENER,  // nothing to do with lanes
	CONN_COUNTING,  // on TCP, below the threshold
	CONN_OFFERED,   // waiting for the peer process to find us
	CONN_ATTACHING, // asked the peer process
	CONN_ATTACHED,  // has a lane; not yet used
	CONN_ENGAGING,  // being moved to ENGAGED, both locks held
	CONN_ENGAGED,   // calls go through lanes where directions have switched
	CONN_OFF,       // stays on TCP, reason says why
	CONN_CLOSED,    // last reference gone
	CONN_RESTING,   // has a lane; on TCP until the programs that have inherited it end: heirs.c
};

// Why a connection is on TCP. The numbers are published.
enum reason {
	REASON_NONE = 0,
	REASON_SETTING,    // EXN_DS=off or no consent by a test hook
	REASON_DIRECTORY,  // no usable fabric directory
	REASON_NO_PEER,    // the peer process did not show up in this directory
	REASON_NOT_LOCAL,  // the address is not one that upgrades
	REASON_PROOF,      // the peer could not show that it owns the other end
	REASON_VERSION,    // library of another version
	REASON_MEMORY,     // memory or a limit
	REASON_FILES,      // no descriptors left
	REASON_LANES,      // all lanes of the channel taken
	REASON_WAITERS,    // all waiters of the channel taken
	REASON_UNCOUNTED,  // bytes moved by calls that no hook saw
	REASON_SHARED,     // several processes hold it
	REASON_STDIO,      // fdopen, dprintf, aio_read
	REASON_OPTION,     // an option or flag that lanes do not do
	REASON_NESTED,     // watched through a nested or inherited epoll set
	REASON_PEER_GONE,  // the peer closed, died or reset
	REASON_TRIPWIRE,   // TCP bytes after the switch
	REASON_HOSTILE,    // nonsense in shared memory
	REASON_ORPHAN,     // a process of the family died inside a call
	REASON_TEST,       // a test hook
	REASON_PRIVILEGE,  // the process changed its privileges
	REASON_REFUSED,    // the peer process said no
	REASON_URING,      // the process has an io_uring
	REASON_RAW,        // the process uses system calls that we do not do
	REASON_POLICY,     // EXN_DS_POLICY says so
	REASON_BRIEF,      // for now: most connections to that port are short
	REASON_NAT,        // the other end has other addresses
	REASON_UNREAD,     // for now: its peer does not read
	REASON_SECCOMP,    // the process has set a filter of system calls
	REASON_PLAIN,      // the peer has no library
	REASON_COUNT,
};
extern const char *const reason_names[REASON_COUNT];
extern const char *const state_names[];

// A channel to one peer process.
struct channel {
	_Atomic uint32_t live; // 0 free, 1 live, 2 dead
	bool inviter;          // we connected: our new lanes have even numbers
	struct lane_memory own, peer; // peer.base is NULL until its HELLO came
	int ctl;                      // control socket, non-blocking
	int ring_own[LANE_WAITERS];   // doorbells we sleep on
	int ring_peer[LANE_WAITERS];  // doorbells the peer sleeps on
	_Atomic uint64_t rung[LANE_WAITERS];  // the epoch for which we rang
	_Atomic uint32_t users[LANE_WAITERS]; // threads and epoll sets that have waiter w of ours
	_Atomic uint32_t rings; // of ours, since bytes or room came by a lane
	_Atomic uint64_t given; // credit on our lanes when there had last been too many
	_Atomic uint64_t read;        // control messages received
	uint64_t sent;                // guarded by ctl_lock
	uint32_t asking;              // ATTACH that have no answer; guarded by the flag of rendezvous.c
	bool wanted;                  // connections wait until they may ask; likewise
	bool newer;                   // the peer is of a later version, and has not yet shown that it speaks ours
	struct lock ctl_lock;
	uint32_t owner;  // process_id of the process that made it
	_Atomic uint32_t serial; // tells it from an earlier channel in this place; 0: none
	uint32_t uid;
	uint32_t pid; // of the peer as the kernel told; what is done with it is in zcopy.c
	int process;  // the same process as a pidfd, or -1
	_Atomic uint32_t zcopy; // enum zcopy_verdict
	uint32_t features; // what the peer's HELLO says of it
	char name[64]; // of the peer process' listener
	char program[16]; // of the peer, if EXN_DS_VERBOSE is set
	_Atomic uint32_t generation;
	_Atomic uint32_t busy[LANE_MOST / 32]; // lanes we picked and have not given back
	_Atomic uint32_t touched[LANE_MOST / 32]; // lanes whose memory has been counted
	_Atomic uint32_t lanes_used;
	_Atomic uint32_t stirs; // by conn_stir
	_Atomic uint32_t why; // it ended: enum reason
	struct lane_pool pool; // last: it is large, and cleaned by pool_end
};

enum mode { MODE_TCP = 0, MODE_LANE = 1 };

// A connection: what dup'd descriptors, threads and forked children share.
struct conn {
	_Atomic uint32_t state;
	_Atomic uint32_t users;  // calls on it now, also those asleep in the kernel; survives reuse
	_Atomic uint32_t reason;
	_Atomic uint32_t refs;   // descriptors in all processes of the family
	_Atomic bool sole;       // no other process has ever held it
	_Atomic uint64_t holders; // processes that hold one, by seat; of the dead too
	_Atomic uint32_t many;    // and how many that have no seat
	_Atomic int error;       // to be reported once, as SO_ERROR would
	_Atomic uint32_t calls;
	_Atomic uint64_t tcp_rx, tcp_tx; // stream bytes that crossed TCP
	_Atomic uint64_t due;            // calls at which to look for the peer again
	_Atomic uint64_t offered_ns;
	uint32_t offered_calls; // calls when we last offered it
	_Atomic bool active;    // connected rather than accepted
	_Atomic bool watched;   // the program asks by calls that we see whether there is something: poll, epoll_wait, many reads
	_Atomic uint8_t vain;   // before that: reads that found nothing since one found something
	_Atomic bool nonblock;
	_Atomic bool known;     // tuple and ino are set
	_Atomic bool named;     // and what else tuple_identify finds out
	_Atomic bool engaged;   // it has been; every process that holds it has the mapping
	_Atomic bool unlaned;   // an option was set that lanes do not do
	_Atomic bool inq;       // TCP_INQ: recvmsg says what is left to read
	_Atomic bool stamps;    // SO_TIMESTAMP: recvmsg says when it came
	_Atomic bool exposed;   // a program without our tables may hold it, as long as it lives
	_Atomic uint32_t exposures; // how often such programs have inherited it: heirs.c
	_Atomic uint32_t ended;     // those of so many times have ended
	_Atomic uint64_t heirs_in;  // inode of the directory where that is asked
	_Atomic uint64_t heirs_at;  // the byte: inode of the socket, which nobody else has while an heir holds it
	_Atomic uint64_t resting_since, resting_until; // clock_ns
	_Atomic bool overdue;   // since it was engaged, a way back to TCP has failed: the peer has not answered yet
	_Atomic uint32_t passes; // how often it was passed on to another process
	_Atomic bool received;  // passed on to us by one that may hold it still; passing.c
	_Atomic bool dead;      // reset: error, then end of stream
	_Atomic bool told;      // the program has had the error of a reset
	_Atomic int kept;              // our copy of the last descriptor, closed while a call went on; or 0
	_Atomic bool offer_out; // our offer is in the directory
	_Atomic bool considered; // for a lane; worth.c
	bool lonely;     // no peer has shown up on the board for a while; worth.c
	bool translates; // somebody tells of translated addresses; home.c
	uint8_t offers, looks;
	uint8_t refusal; // enum reason: why the other end has none, where that is known
	uint16_t port; // of the server, network order; 0: unknown
	uint32_t mark; // for walks over descriptors
	_Atomic uint32_t rcvlowat; // the program's; the kernel's is 1 while engaged
	_Atomic uint32_t number; // a descriptor of the process that made it, plus one, for status.h; 0: it has none left
	_Atomic uint64_t rcvtimeo_ns, sndtimeo_ns; // 0: none
	_Atomic int32_t linger_s;                  // -1: off
	struct tuple tuple, other; // as both ends see it; the ports of other are 0: it is not known how that does
	uint64_t ino, peer_ino;
	uint64_t net, peer_net; // cookies of the network namespaces of both ends; of the other's 0: as ours

	_Atomic uint32_t owner; // the process that looks for the peer
	struct channel *channel;
	uint32_t lane, generation;
	struct lane_ctl *own;
	const struct lane_ctl *peer;

	// Reading. Guarded by rx_lock; flags are also read without it, as hints.
	struct lock rx_lock;
	struct lane_rx rx;
	_Atomic uint32_t rx_mode;
	_Atomic uint32_t rx_hint; // 1: the kernel may have something to say; 2: it is being asked
	bool rx_pending;        // a TAG_SWITCH waits for rx_switch_at
	uint64_t rx_switch_at;  // N
	uint64_t rx_consented;
	uint64_t rx_switched; // how many TAG_SWITCH came
	bool rx_crossing;     // one was dropped, and its TAG_BACK comes
	_Atomic bool rx_eof;    // nothing more comes
	_Atomic bool rx_fin;    // the kernel has the peer's end; the lane may hold more
	_Atomic bool rx_shut; // by us
	_Atomic uint32_t shutdowns; // made here; the kernel tells all watchers of each
	_Atomic uint32_t lowats;    // times SO_RCVLOWAT was set and reached: that is news
	_Atomic bool rx_frozen; // go_back is set and the writer has not answered
	_Atomic bool rx_told; // the program was told of bytes on the lane
	_Atomic bool rx_late; // these come by TCP
	struct spin rx_spin;

	// Writing. Guarded by tx_lock.
	struct lock tx_lock;
	struct lane_tx tx;
	_Atomic uint32_t tx_mode;
	uint64_t tx_switches;
	_Atomic bool tx_shut;
	_Atomic bool tx_off;  // by TCP from now on
	_Atomic bool tx_back; // for now
	uint64_t tx_heard;        // lane_rx bytes at the last write
	bool tx_behind;           // and there were more
	_Atomic uint32_t starved; // times a write found no room
	_Atomic uint64_t credit;  // that the reader had given by then
	_Atomic uint64_t refused; // bytes sent when that was last so, + 1
	_Atomic uint64_t tx_since; // clock_ns when there was none for the first time since the reader took any; 0: there was
	_Atomic uint64_t tx_until; // by TCP until then, for the reader takes nothing; 0: it does
	unsigned tx_stuck;         // how often
	_Atomic uint32_t tx_owes;  // TCP has no room for what goes back to it
	_Atomic uint64_t marked; // how often the peer had asked for a mark when we made one
	struct spin tx_spin;

	_Atomic uint64_t asker; // the set that has asked for marks, 0: none
	_Atomic bool stirred;

	_Atomic(const void *) ahead; // the slot of the connection that is read next, most likely; maybe long gone
	_Atomic uint64_t asked; // clock_ticks when the kernel was last asked about an end, or need be as if it was (stream_told)
};

// family_init makes the memory of this process; false if it cannot. It costs
// nothing until the first call.
bool family_init(void);

// family_child is called in a forked child: what it allocates from now on
// comes from memory of its own.
void family_child(void);

// family_complains is true for the first process of a family that asks, if that has opened a
// TCP socket: it may tell the user what goes for all of them.
bool family_complains(void);

// A process has a seat in its family, a bit by which the others find out whether it lives.
// 0: it has none, as before it forks for the first time, and if there are too many.
uint64_t family_seat(void);       // for a child to be
void family_sit(uint64_t seat);   // in the child: this is ours
void family_cloned(void);         // likewise: we have none, since nobody gave it before we were
void family_unseat(uint64_t seat); // there is no child
uint64_t family_own(void);        // our seat
bool family_live(uint64_t seats); // one of these at least
void family_kick(uint64_t seats);    // interrupts them (sleep.h)

struct conn *family_conn_new(void);       // NULL when there is no room
void family_conn_free(struct conn *c);    // once refs and users are 0
// family_conn_next walks over those in use that this process has made.
struct conn *family_conn_next(struct conn *after);
bool family_made(const struct conn *c); // this process has made it
struct channel *family_channel_new(void); // likewise
bool family_channel_known(const struct channel *ch); // its memory is ours, or of those that forked us
// family_channels walks over the live channels that this process can use.
struct channel *family_channel_next(struct channel *after);
// family_spent is what the budget has granted to all channels of the family.
uint64_t family_spent(void);
// family_channel_dead finds one of this process that is dead and unused.
struct channel *family_channel_dead(void);

#endif
