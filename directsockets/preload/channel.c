// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Either process connects to the listener of the other (rendezvous.c) and both
// send HELLO with their memory file and eventfds. The file is mapped only when
// its seals and size are right:
//
//	a tmpfs of base pages      the first touch of a huge page could find none (SIGBUS)
//	F_SEAL_SHRINK|F_SEAL_GROW  it cannot be truncated under us (SIGBUS)
//	F_SEAL_FUTURE_WRITE        nobody but its owner, who mapped it before
//	                           sealing, can write it, not even by reopening it
//
// A peer without these seals, of another version or with another geometry than
// it claims gets no channel. The mapping of the peer's file is read-only.
//
// Lanes are numbered; the side that connected picks even numbers, the other
// odd ones, so they never pick the same. A lane is free again when both sides
// have set its generation to 0, each in its own memory.
//
// Death: the control socket hangs up when no process of the peer's family
// holds it any more.
//
// Each process keeps a private list of the channels it has descriptors and
// mappings of, since forked children inherit both. The process that made a
// channel gives everything back when the channel is dead and no connection of
// the family has a lane on it; then the channel's place is free. A forked child
// does so at once with channels that none of its connections has a lane on, and
// keeps the others until it ends: later a thread may be inside a call on one.
#include "real.h"

#include "channel.h"

#include <errno.h>
#include <linux/magic.h>
#include <linux/rseq.h>
#include <string.h>
#include <sched.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "budget.h"
#include "buffer.h"
#include "config.h"
#include "conn.h"
#include "directory.h"
#include "doorbell.h"
#include "far.h"
#include "files.h"
#include "presence.h"
#include "process.h"
#include "rendezvous.h"
#include "sleep.h"
#include "zcopy.h"

// What this process holds of a channel. The copies are private: the place of
// the channel in family memory may be another channel's by the time a child
// lets go.
struct held {
	struct channel *ch; // NULL: free
	uint32_t serial;
	bool needed; // for channel_spare
	int ctl, process, ring_own[LANE_WAITERS], ring_peer[LANE_WAITERS];
	struct lane_memory own, peer;
};
static struct held held[FAMILY_CHANNELS];
static _Atomic int held_top; // no place from here on was ever taken

static struct held *held_of(const struct channel *ch)
{
	for (int i = 0; i < held_top; i++)
		if (held[i].ch == ch && held[i].serial == ch->serial)
			return &held[i];
	return NULL;
}

// hold notes what the process has of the channel now. False: no place.
static bool hold(struct channel *ch)
{
	struct held *h = held_of(ch);
	for (int i = 0; !h && i < FAMILY_CHANNELS; i++)
		if (!held[i].ch) {
			h = &held[i];
			held_top = i < held_top ? held_top : i + 1;
		}
	if (!h)
		return false;
	*h = (struct held){.ch = ch, .serial = ch->serial, .ctl = ch->ctl, .process = ch->process, .own = ch->own, .peer = ch->peer};
	memcpy(h->ring_own, ch->ring_own, sizeof h->ring_own);
	memcpy(h->ring_peer, ch->ring_peer, sizeof h->ring_peer);
	return true;
}

// Heads of memory of ours that a thread may be about to write to; see channel_unmap.
static uint8_t *_Atomic heads[32];

// unmap_heads unmaps those of which that is over.
static void unmap_heads(void)
{
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) {
		uint8_t *head = heads[i] ? atomic_exchange(&heads[i], NULL) : NULL;
		if (!head)
			continue;
		if (doorbell_untouched()) // asked with this one in hand: its channel had ended before
			munmap(head, LANE_HEAD);
		else
			heads[i] = head; // if another one came here meanwhile, that stays mapped for ever
	}
}

void channel_unmap(uint8_t *base, uint64_t size)
{
	unmap_heads();
	budget_unmap(size);
	if (doorbell_untouched()) {
		munmap(base, size);
		return;
	}
	if (mmap(base, LANE_HEAD, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
		return; // all of it stays
	size_t page = (size_t)sysconf(_SC_PAGESIZE), head = (LANE_HEAD + page - 1) / page * page;
	if (size > head)
		munmap(base + head, size - head);
	uint8_t *none = NULL;
	for (size_t i = 0; i < sizeof heads / sizeof *heads; i++, none = NULL)
		if (atomic_compare_exchange_strong(&heads[i], &none, base))
			return;
}

static void let_go(struct held *h)
{
	for (int w = 0; w < LANE_WAITERS; w++) {
		files_close(h->ring_own[w]);
		files_close(h->ring_peer[w]);
	}
	files_close(h->ctl);
	files_close(h->process);
	if (h->own.base && !buffer_keep(h->own.base))
		channel_unmap(h->own.base, h->own.size);
	if (h->peer.base) {
		munmap(h->peer.base, h->peer.size);
		budget_unmap(h->peer.size);
	}
	h->ch = NULL;
}

void channel_free(struct channel *ch)
{
	struct held *h = held_of(ch);
	pool_end(&ch->pool);
	ch->serial = 0; // what perches have of it is void, before it is unmapped
	if (h)
		let_go(h);
	atomic_store(&ch->live, 0);
}

void channel_spare(void)
{
	for (int i = 0; i < held_top; i++)
		held[i].needed = false;
	for (int fd = 0; fd < files_top(); fd++) {
		struct conn *c = conn_get(fd);
		struct held *h = c && c->channel && c->own ? held_of(c->channel) : NULL;
		if (h)
			h->needed = true;
		if (c)
			conn_put(c);
	}
	for (int i = 0; i < held_top; i++)
		if (held[i].ch && !held[i].needed)
			let_go(&held[i]);
}

bool channel_hung_up(const struct channel *ch)
{
	struct pollfd p = {ch->ctl, 0, 0};
	return ch->ctl < 0 || (real.poll(&p, 1, 0) > 0 && p.revents & (POLLHUP | POLLERR | POLLNVAL));
}

void channel_look(void)
{
	enum { AT_ONCE = 32 }; // threads may have stacks of 16 KiB
	for (int i = 0; i < held_top;) {
		struct pollfd p[AT_ONCE];
		struct channel *of[AT_ONCE];
		nfds_t n = 0;
		for (; i < held_top && n < AT_ONCE; i++) {
			struct channel *ch = held[i].ch;
			if (ch && ch->owner == process_id() && ch->serial == held[i].serial && atomic_load(&ch->live) == 1) {
				of[n] = ch;
				p[n++] = (struct pollfd){held[i].ctl, 0, 0};
			}
		}
		if (n == 0 || real.poll(p, n, 0) <= 0)
			continue;
		for (nfds_t k = 0; k < n; k++)
			if (p[k].revents & (POLLHUP | POLLERR))
				channel_kill(of[k], REASON_PEER_GONE);
	}
}

// stranger: the peer is another user's, in the directory of a group. It is believed less.
static bool stranger(const struct channel *ch) { return ch->uid != geteuid(); }

// Of a stranger's file no page may be missing, for to read it there would make it, and we would pay.
// Seals keep what is there from going. So the file is made as a whole, and it is small.
enum {
	STRANGE_LANES = 64,
	STRANGE_SLOTS = 64,
	STRANGE_WINDOW = 256 << 10,
	STRANGE_WINDOWS = 8,
	STRANGE_MOST = 8 << 20, // bytes that a stranger's file may have
};

static bool own_memory(struct channel *ch, int *fd)
{
	struct lane_memory *m = &ch->own;
	bool strange = stranger(ch);
	uint32_t lanes = strange && config.lanes > STRANGE_LANES ? STRANGE_LANES : config.lanes;
	m->slots = strange && config.slots > STRANGE_SLOTS ? STRANGE_SLOTS : config.slots;
	m->window = strange && config.window > STRANGE_WINDOW ? STRANGE_WINDOW : config.window;
	m->windows = strange && config.windows > STRANGE_WINDOWS ? STRANGE_WINDOWS : config.windows;
	// Where address space is short there are fewer lanes and windows. The peer's file,
	// as large by default, is still to come.
	for (m->lanes = lanes; m->lanes >= 2; m->lanes = m->lanes / 2 & ~1u, m->windows = (m->windows + 1) / 2) {
		m->size = lane_memory_size(m->lanes, m->slots, m->windows, m->window);
		if (budget_map(2 * m->size))
			break;
	}
	if (m->lanes < 2)
		return false;
	budget_unmap(m->size);
	if (strange && !budget_whole(&ch->pool, m->size)) {
		budget_unmap(m->size);
		return false;
	}
	*fd = files_memory("exn-ds-channel", m->size);
	int how = MAP_SHARED | (strange ? MAP_POPULATE : MAP_NORESERVE);
	void *p = *fd < 0 ? MAP_FAILED : mmap(NULL, m->size, PROT_READ | PROT_WRITE, how, *fd, 0);
	if (p == MAP_FAILED) {
		budget_unmap(m->size);
		return false;
	}
	m->base = p;
	struct lane_head *h = lane_head(m);
	h->magic = LANE_MAGIC;
	h->version = LANE_VERSION;
	h->lanes = m->lanes;
	h->slots = m->slots;
	h->windows = m->windows;
	h->window = m->window;
	h->size = m->size;
	return real.fcntl(*fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0;
}

static enum reason map_peer(struct channel *ch, int fd, const struct message *m)
{
	int need = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
	struct stat st;
	struct statfs on;
	if (m->version < LANE_OLDEST)
		return REASON_VERSION;
	if (!lane_geometry_legal(m->lanes, m->slots, m->windows, m->window) ||
	    m->size != lane_memory_size(m->lanes, m->slots, m->windows, m->window))
		return REASON_HOSTILE;
	int seals = real.fcntl(fd, F_GET_SEALS); // only memory has any; so what follows waits for nobody
	if (seals < 0 || (seals & need) != need || real_fstat(fd, &st) < 0 || (uint64_t)st.st_size != m->size)
		return REASON_HOSTILE;
	// Of huge pages there may be none left when one is touched, which would kill us.
	if (fstatfs(fd, &on) < 0 || on.f_type != TMPFS_MAGIC || on.f_bsize != sysconf(_SC_PAGESIZE))
		return REASON_HOSTILE;
	if (stranger(ch) && (m->size > STRANGE_MOST || lseek(fd, 0, SEEK_HOLE) != (off_t)m->size))
		return REASON_HOSTILE;
	if (!budget_map(m->size))
		return REASON_MEMORY;
	void *p = mmap(NULL, m->size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, 0);
	if (p == MAP_FAILED) {
		budget_unmap(m->size);
		return REASON_MEMORY;
	}
	ch->peer = (struct lane_memory){NULL, m->size, m->lanes, m->slots, m->windows, m->window};
	atomic_thread_fence(memory_order_release);
	ch->peer.base = p;
	return REASON_NONE;
}

bool channel_send(struct channel *ch, const struct message *m, const int *fds, int n)
{
	struct iovec iov = {(void *)(uintptr_t)m, sizeof *m};
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(sizeof(int) * (1 + LANE_WAITERS))];
	} c;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1};
	memset(&c, 0, sizeof c);
	if (n > 0) {
		h.msg_control = &c;
		h.msg_controllen = CMSG_SPACE(sizeof(int) * (size_t)n);
		c.h.cmsg_level = SOL_SOCKET;
		c.h.cmsg_type = SCM_RIGHTS;
		c.h.cmsg_len = CMSG_LEN(sizeof(int) * (size_t)n);
		memcpy(CMSG_DATA(&c.h), fds, sizeof(int) * (size_t)n);
	}
	if (lock_take(&ch->ctl_lock, NULL) == LOCK_REFUSED)
		return false;
	bool ok = real.sendmsg(ch->ctl, &h, MSG_DONTWAIT | MSG_NOSIGNAL) == (ssize_t)sizeof *m;
	if (ok)
		atomic_store_explicit(&lane_head(&ch->own)->posted, ++ch->sent, memory_order_release);
	lock_give(&ch->ctl_lock);
	return ok;
}

struct channel *channel_open(int ctl, bool inviter, enum reason *why)
{
	struct channel *ch = family_channel_new();
	int fds[1 + LANE_WAITERS] = {-1};
	struct ucred cred;
	socklen_t n = sizeof cred;
	struct message m = {.kind = MESSAGE_HELLO, .version = LANE_VERSION, .features = FEATURE_BUFFER | FEATURE_DATE};
	*why = REASON_MEMORY;
	if (!ch) {
		files_close(ctl);
		return NULL;
	}
	ch->ctl = ctl;
	ch->inviter = inviter;
	if (real.getsockopt(ctl, SOL_SOCKET, SO_PEERCRED, &cred, &n) < 0)
		goto fail;
	ch->uid = cred.uid;
	if (!config.group && ch->uid != geteuid()) { // root's, who needs no permission to connect
		*why = REASON_REFUSED;
		goto fail;
	}
	ch->pid = (uint32_t)cred.pid;
	if (config.verbose)
		far_program(ch->program, ch->pid);
	ch->process = zcopy_process(ch);
	if (!own_memory(ch, &fds[0]))
		goto fail;
	pool_init(&ch->pool, &ch->own, &ch->peer, config.window_least);
	*why = REASON_FILES;
	for (int w = 0; w < LANE_WAITERS; w++) {
		ch->ring_own[w] = doorbell_make();
		if (ch->ring_own[w] < 0)
			goto fail;
		fds[1 + w] = ch->ring_own[w];
	}
	m.lanes = ch->own.lanes;
	m.slots = ch->own.slots;
	m.windows = ch->own.windows;
	m.window = ch->own.window;
	m.size = ch->own.size;
	snprintf(m.name, sizeof m.name, "%s", presence_name);
	if (!channel_send(ch, &m, fds, 1 + LANE_WAITERS))
		goto fail;
	if (!hold(ch))
		goto fail;
	files_close(fds[0]); // the mapping is enough
	atomic_store_explicit(&ch->live, 1, memory_order_release);
	return ch;
fail:
	files_close(fds[0]);
	if (held_of(ch) || hold(ch))
		channel_free(ch);
	return NULL;
}

void channel_kill(struct channel *ch, enum reason why)
{
	uint32_t is = 1;
	if (atomic_load(&ch->live) == 1) // before it is seen to have ended
		atomic_store(&ch->why, ch->newer && why == REASON_PEER_GONE ? REASON_VERSION : why);
	if (atomic_compare_exchange_strong(&ch->live, &is, 2))
		config_log("shared memory with %s (process %u) ends: %s", ch->program, ch->pid, reason_names[ch->why]);
	// Memory, control socket and eventfds stay: connections may still read
	// from them. rendezvous.c frees them with the last lane.
	if (is == 1 && atomic_load(&ch->lanes_used) == 0)
		rendezvous_sweep_due();
}

void channel_kill_all(enum reason why)
{
	for (int i = 0; i < held_top; i++)
		if (held[i].ch && held[i].ch->owner == process_id() && held[i].ch->serial == held[i].serial)
			channel_kill(held[i].ch, why);
}

void channel_kick(struct channel *ch)
{
	// Nobody dies of it: without a handler SIGURG is ignored.
	if (ch->pid > 0 && atomic_load(&ch->live) == 1)
		sleep_kick((pid_t)ch->pid);
}

// given is the credit for all that is out on our lanes, no more than we have posted.
static uint64_t given(const struct channel *ch)
{
	uint64_t sum = 0;
	for (int fd = 0; fd < files_top(); fd++) {
		struct conn *c = conn_get(fd);
		if (!c)
			continue;
		if (conn_engaged(c) && c->channel == ch) {
			struct lane_tx copy = c->tx;
			lane_joined(&copy); // it looks what the reader has given
			sum += copy.slots_taken + copy.window_taken;
		}
		conn_put(c);
	}
	return sum;
}

void channel_rung(struct channel *ch)
{
	// An honest peer rings once for what it posts or takes. While we take and post
	// nothing it has the slots of the lanes in use for that, its own and ours; all
	// waiters may count each. To take lanes away it rings once a millisecond, for 1 s.
	// One that takes a few bytes at a time rings for each, but there is more and more credit.
	enum { LEAVING = 4096 };
	uint64_t most = LEAVING + (uint64_t)LANE_WAITERS * ch->lanes_used * (ch->own.slots + ch->peer.slots);
	if (atomic_fetch_add_explicit(&ch->rings, 1, memory_order_relaxed) <= most)
		return;
	uint64_t credit = given(ch);
	if (atomic_exchange(&ch->given, credit) == credit)
		channel_kill(ch, REASON_HOSTILE);
	channel_brought(ch);
}

bool channel_pending(struct channel *ch)
{
	if (!ch->peer.base)
		return true; // only the socket can tell
	return atomic_load_explicit(&lane_head(&ch->peer)->posted, memory_order_acquire) != atomic_load(&ch->read);
}

static void hello(struct channel *ch, const struct message *m, int *fds, int n)
{
	if (ch->peer.base || n != 1 + LANE_WAITERS || memchr(m->name, 0, sizeof m->name) == NULL) {
		channel_kill(ch, REASON_HOSTILE);
		return;
	}
	for (int w = 0; w < LANE_WAITERS; w++) {
		if (!doorbell_legal(fds[1 + w])) {
			channel_kill(ch, REASON_HOSTILE);
			return;
		}
		ch->ring_peer[w] = files_keep(fds[1 + w]);
		fds[1 + w] = -1;
		if (ch->ring_peer[w] < 0) {
			channel_kill(ch, REASON_FILES);
			return;
		}
	}
	memcpy(ch->name, m->name, sizeof ch->name);
	ch->features = m->features;
	ch->newer = m->version > LANE_VERSION;
	ch->pool.dated = m->features & FEATURE_DATE;
	enum reason why = map_peer(ch, fds[0], m);
	hold(ch);
	if (why != REASON_NONE)
		channel_kill(ch, why);
}

void channel_receive(struct channel *ch, void (*f)(struct channel *ch, const struct message *m, const int *fds, int n))
{
	for (int rounds = 0; rounds < 64 && atomic_load(&ch->live) == 1; rounds++) {
		struct message m;
		struct iovec iov = {&m, sizeof m};
		union {
			struct cmsghdr h;
			char space[CMSG_SPACE(sizeof(int) * (1 + LANE_WAITERS))];
		} c;
		struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &c, .msg_controllen = sizeof c};
		int fds[1 + LANE_WAITERS], n = 0;
		ssize_t got = real.recvmsg(ch->ctl, &h, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
		if (got < 0) {
			if (errno != EAGAIN && errno != EINTR)
				channel_kill(ch, REASON_PEER_GONE);
			return;
		}
		for (struct cmsghdr *k = CMSG_FIRSTHDR(&h); k; k = CMSG_NXTHDR(&h, k))
			if (k->cmsg_level == SOL_SOCKET && k->cmsg_type == SCM_RIGHTS && n == 0) {
				n = (int)((k->cmsg_len - CMSG_LEN(0)) / sizeof(int));
				memcpy(fds, CMSG_DATA(k), (size_t)n * sizeof(int));
			}
		if (got == 0) {
			channel_kill(ch, REASON_PEER_GONE);
		} else {
			atomic_fetch_add(&ch->read, 1);
			if (got != (ssize_t)sizeof m || h.msg_flags & (MSG_CTRUNC | MSG_TRUNC))
				channel_kill(ch, REASON_HOSTILE);
			else if (m.kind == MESSAGE_HELLO)
				hello(ch, &m, fds, n);
			else if (!ch->peer.base)
				channel_kill(ch, REASON_HOSTILE);
			else
				f(ch, &m, fds, n);
		}
		for (int i = 0; i < n; i++)
			if (fds[i] >= 0)
				real.close(fds[i]);
		if (got == 0)
			return;
	}
}

// free_lane is the first lane that both sides have let go of, of those that we pick
// from, which are every other one; -1 when there is none.
static int free_lane(struct channel *ch)
{
	uint32_t most = ch->own.lanes < ch->peer.lanes ? ch->own.lanes : ch->peer.lanes;
	uint32_t ours = ch->inviter ? 0x55555555 : 0xaaaaaaaa;
	for (uint32_t word = 0; word * 32 < most; word++) {
		for (uint32_t free = ~ch->busy[word] & ours; free; free &= free - 1) {
			uint32_t lane = word * 32 + (uint32_t)__builtin_ctz(free);
			if (lane < most && !atomic_load_explicit(&lane_ctl(&ch->own, lane)->generation, memory_order_acquire) &&
			    !atomic_load_explicit(&lane_ctl(&ch->peer, lane)->generation, memory_order_acquire))
				return (int)lane;
		}
	}
	return -1;
}

// full: none of the lanes that we may pick is left. Unknown before HELLO.
static bool full(struct channel *ch) { return ch->peer.base && free_lane(ch) < 0; }

struct channel *channel_to(const char *name, enum reason *why)
{
	enum { MOST = 8 }; // with the default geometry as many lanes as connections
	int n = 0;
	for (struct channel *ch = family_channel_next(NULL); ch; ch = family_channel_next(ch)) {
		if (ch->owner != process_id() || strcmp(ch->name, name) != 0)
			continue;
		if (!full(ch))
			return ch;
		n++;
	}
	*why = REASON_LANES;
	if (n >= MOST)
		return NULL;
	*why = REASON_FILES;
	int s = files_keep(real.socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
	if (s < 0)
		return NULL;
	if (directory_connect(s, name) < 0) {
		*why = REASON_NO_PEER;
		files_close(s);
		return NULL;
	}
	struct channel *ch = channel_open(s, true, why);
	if (ch)
		snprintf(ch->name, sizeof ch->name, "%s", name);
	return ch;
}

int channel_pick(struct channel *ch, uint32_t *generation)
{
	for (int lane; (lane = free_lane(ch)) >= 0;) {
		uint32_t bit = 1u << (lane % 32);
		if (atomic_fetch_or(&ch->busy[lane / 32], bit) & bit)
			continue;
		*generation = atomic_fetch_add(&ch->generation, 1) + 1;
		return lane;
	}
	return -1;
}

void channel_unpick(struct channel *ch, uint32_t lane) { atomic_fetch_and(&ch->busy[lane / 32], ~(1u << (lane % 32))); }

// Those of sys/rseq.h, which glibc has since 2.35.
extern const unsigned __rseq_size __attribute__((weak));
extern const ptrdiff_t __rseq_offset __attribute__((weak));

// The CPU this thread runs on, plus one; 0 when unknown.
static uint64_t here(void)
{
	if (&__rseq_size && __rseq_size) {
		const struct rseq *r = (const struct rseq *)((char *)__builtin_thread_pointer() + __rseq_offset);
		int cpu = (int)*(const volatile uint32_t *)&r->cpu_id;
		if (cpu >= 0)
			return (uint64_t)cpu + 1;
	}
	return (uint64_t)sched_getcpu() + 1;
}

void channel_ran(struct channel *ch)
{
	_Atomic uint64_t *cpu = &lane_head(&ch->own)->cpu;
	uint64_t now = here();
	if (atomic_load_explicit(cpu, memory_order_relaxed) != now)
		atomic_store_explicit(cpu, now, memory_order_relaxed);
}

bool channel_near(const struct channel *ch)
{
	return atomic_load_explicit(&lane_head(&ch->peer)->cpu, memory_order_relaxed) == here();
}
