// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A blocking write of many bytes would wait for the reader anyway. So it announces where
// they are, and the reader copies them once (process_vm_readv) instead of both copying.
//
//	writer, in write()                          reader, in a call of its own
//	                                            zcopy_least = the shortest it wants
//	ZCOPY{address, length} in a slot  ────────► comes to it, in order
//	sleeps                                      zcopy_busy = 1, copies a piece,
//	counts  ◄────────────────────────────────── zcopy_taken += n, zcopy_busy = 0
//	the rest, less than a window, by the window
//
// One advert of a lane is out at a time, and nothing follows it: so when it ends after k
// bytes, it was a write of k bytes, and the way back to TCP, ends and credit need not know
// more. The last window of a write is not advertised: a write returns when there is room
// for the rest, as it does without, and the reader has work while the writer gets on.
//
// The memory is the program's again when write returns, a signal handler runs, or the
// thread is cancelled; and who goes back to TCP, shuts down or closes must know what was
// taken. Then the advert is withdrawn:
//
//	writer                                      reader
//	zcopy_withdrawn = number of the advert      zcopy_busy = 1
//	fence                            (3)        fence                        (4)
//	while zcopy_busy: again later               zcopy_withdrawn >= number: busy = 0, leave
//	zcopy_taken is final                        copy; zcopy_taken; zcopy_busy = 0 (release)
//
// Either the reader sees that it is withdrawn, or the writer sees that it is busy. A reader is
// busy for one piece of PULL bytes. After that it sleeps, for nothing more comes to it of this
// advert: so whoever finds it busy has the call that made the advert go on withdrawing (lane_wanted).
// One that is stopped just then keeps the writer waiting;
// after 1 s that resets the connection. test/memmodel/channel has the model.
//
// A registered buffer (buffer.c) lies in our memory file, which the reader has mapped: what
// is advertised out of it (BUFFER) any reader copies, in calls of any size, and it needs
// no permission and no system call. Everything else is the same.
//
// A reader that cannot copy (not permitted, the address is bad) or does not want to (its
// calls are small) sets zcopy_least to 0 and rings; the writer withdraws.
//
// Whose memory: that of the process that made the channel, as the kernel knows it
// (SO_PEERCRED; the number alone could be another process' by now), which must still be alive
// after the copy (SO_PEERPIDFD, and the control socket, which is closed on exec), before any
// byte is handed out. It must have our user, and we no more rights than that: what the peer could
// not read itself, by starting a program that runs as somebody else, we must not read for it.
// A forked child neither advertises, for the memory is another, nor copies: in its namespace
// the number may mean something else.
#include "real.h"

#include "zcopy.h"

#include <errno.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/uio.h>

#include "channel.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "process.h"
#include "transmit.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 // Linux 6.5
#endif

enum { PULL = 1 << 20 }; // most bytes that the reader is busy with at once

enum zcopy_verdict { UNTRIED, POSSIBLE, IMPOSSIBLE };

// The advert of this thread's call, unless it is known to have ended.
static __thread struct zcopy *mine __attribute__((tls_model("initial-exec")));

// The writer.

// reads_memory: the reader takes an advert of n bytes of this process' memory.
static bool reads_memory(const struct conn *c, size_t n)
{
	uint64_t least = load_acquire(&c->peer->zcopy_least);
	return least > 0 && n >= least && n >= config.zcopy && c->channel->owner == process_id();
}

// reads_buffers: it takes one of n bytes of a registered buffer, and that pays.
static bool reads_buffers(const struct conn *c, size_t n)
{
	return n >= config.buffer && c->channel->features & FEATURE_BUFFER;
}

bool zcopy_offer(struct conn *c, int fd, const struct cursor *cur, struct zcopy *z)
{
	if ((cur->left < config.zcopy && cur->left < config.buffer) || cur->n == 0 || c->tx.poor || mine)
		return false;
	size_t n = cur->iov->iov_len - cur->off, rest = cur->left - n;
	size_t tail = rest < c->tx.window_size ? c->tx.window_size - rest : 0;
	const char *from = (char *)cur->iov->iov_base + cur->off;
	if (n <= tail || c->tx.advert.left || c->tx.advert.owed ||
	    !(lane_inside(&c->tx, from, n) ? reads_buffers(c, n - tail) : reads_memory(c, n - tail)) ||
	    !lane_advertise(&c->tx, from, n - tail))
		return false;
	*z = (struct zcopy){.c = c, .fd = fd, .seen = c->tx.advert.taken};
	mine = z;
	return true;
}

// ended notes the end of an advert, so that the next one may be made.
static void ended(struct zcopy *z)
{
	z->over = true;
	z->end = z->c->tx.advert.taken;
	z->c->tx.advert.owed = false;
	if (mine == z)
		mine = NULL;
}

size_t zcopy_count(struct cursor *cur, struct zcopy *z)
{
	if (!z->c)
		return 0;
	struct lane_tx *t = &z->c->tx;
	if (!z->over && !lane_advert_out(t))
		ended(z);
	uint64_t taken = z->over ? z->end : t->advert.taken;
	size_t n = taken - z->seen;
	z->seen = taken;
	cursor_skip(cur, n);
	if (z->over)
		z->c = NULL;
	return n;
}

bool zcopy_stays(const struct zcopy *z)
{
	const struct conn *c = z->c;
	return !c || (lane_wanted(&c->tx) && !load_acquire(&c->peer->go_back) && !load_acquire(&c->peer->closed) &&
		      !tx_barred(c) && !c->rx_fin && atomic_load(&c->channel->live) == 1);
}

bool zcopy_withdraw(struct conn *c)
{
	if (!lane_advert_out(&c->tx))
		return true;
	bool first = atomic_load_explicit(&c->own->zcopy_withdrawn, memory_order_relaxed) != c->tx.advert.number;
	atomic_store_explicit(&c->own->zcopy_withdrawn, c->tx.advert.number, memory_order_relaxed);
	atomic_thread_fence(memory_order_seq_cst); // (3)
	bool gone = load_acquire(&c->peer->closed) || atomic_load(&c->channel->live) != 1;
	bool over = gone || !load_acquire(&c->peer->zcopy_busy);
	if (over) {
		lane_advert_end(&c->tx);
		conn_stir(c);
	}
	if (first && (!mine || mine->c != c)) { // its writer sleeps; it goes on withdrawing what is not over
		uint64_t mask = atomic_load(&c->own->tx_waiters);
		for (int w = 0; w < LANE_WAITERS; w++)
			if (mask >> w & 1)
				doorbell_wake(c->channel, w);
	}
	return over;
}

void zcopy_end(void)
{
	enum { PATIENCE = 1000 }; // milliseconds
	struct zcopy *z = mine;
	int saved = errno;
	for (int i = 0; z; i++) {
		struct conn *c = z->c;
		if (lock_take(&c->tx_lock, &c->sole) == LOCK_REFUSED)
			break; // a handler in a call that holds it, and does not sleep
		bool over = !c->own || zcopy_withdraw(c);
		if (!over && i == PATIENCE) {
			conn_reset(c, z->fd, REASON_HOSTILE);
			lane_advert_end(&c->tx);
			over = true;
		}
		if (over)
			ended(z);
		lock_give(&c->tx_lock);
		if (over)
			break;
		real.poll(NULL, 0, i < 10 ? 0 : 1);
	}
	errno = saved;
}

// The reader.

int zcopy_process(const struct channel *ch)
{
	int fd = -1;
	socklen_t n = sizeof fd;
	if (config.zcopy == ~0ull || ch->pid == 0 || real.getsockopt(ch->ctl, SOL_SOCKET, SO_PEERPIDFD, &fd, &n) < 0)
		return -1;
	return files_keep(fd);
}

// privileged: the kernel would let us read what our user may not.
static bool privileged(void)
{
	struct __user_cap_header_struct h = {_LINUX_CAPABILITY_VERSION_3, 0};
	struct __user_cap_data_struct d[2];
	return syscall(SYS_capget, &h, d) < 0 || d[0].effective & (1u << CAP_SYS_PTRACE);
}

// permitted asks the kernel to copy from an address where nothing is.
static bool permitted(const struct channel *ch)
{
	uid_t me = geteuid();
	char b;
	struct iovec to = {&b, 1}, from = {NULL, 1};
	return ch->process >= 0 && ch->uid == me && getuid() == me && (me == 0 || !privileged()) &&
	       process_vm_readv((pid_t)ch->pid, &to, 1, &from, 1, 0) < 0 && errno == EFAULT;
}

static bool possible(struct channel *ch)
{
	if (ch->owner != process_id())
		return false;
	if (ch->zcopy == UNTRIED) {
		int saved = errno;
		atomic_store(&ch->zcopy, permitted(ch) ? POSSIBLE : IMPOSSIBLE);
		errno = saved;
	}
	return ch->zcopy == POSSIBLE;
}

// gone: the process that the number meant when we began may have ended.
static bool gone(const struct channel *ch)
{
	struct pollfd p[2] = {{ch->process, POLLIN, 0}, {ch->ctl, 0, 0}};
	int n;
	while ((n = real.poll(p, 2, 0)) < 0 && errno == EINTR)
		;
	return n != 0;
}

void zcopy_reads(struct conn *c, bool large)
{
	c->rx.advert.invited = large;
	atomic_store(&c->own->zcopy_least, large && possible(c->channel) ? config.zcopy : 0);
	if (!large) // an advert that is out
		doorbell_ring(c, &c->peer->tx_waiters);
}

// copy copies up to a piece from the writer's memory; errors are none of the program's.
static size_t copy(const struct channel *ch, uint64_t from, size_t n, struct cursor *cur)
{
	struct iovec to[16], remote;
	size_t left = n < cur->left ? n : cur->left, total = 0, off = cur->off;
	int count = 0, saved = errno;
	left = left < PULL ? left : PULL;
	for (int i = 0; i < cur->n && count < 16 && left > 0; i++, off = 0) {
		size_t k = cur->iov[i].iov_len - off;
		if (k > left)
			k = left;
		if (k == 0)
			continue;
		to[count++] = (struct iovec){(char *)cur->iov[i].iov_base + off, k};
		left -= k;
		total += k;
	}
	remote = (struct iovec){(void *)(uintptr_t)from, total};
	ssize_t got = process_vm_readv((pid_t)ch->pid, to, (unsigned long)count, &remote, 1, 0);
	if (got > 0 && gone(ch))
		got = 0;
	errno = saved;
	cursor_skip(cur, got > 0 ? (size_t)got : 0);
	return got > 0 ? (size_t)got : 0;
}

// copy_inside copies up to a piece out of the writer's windows.
static size_t copy_inside(const struct lane_rx *r, size_t n, struct cursor *cur)
{
	n = n < cur->left ? n : cur->left;
	n = n < PULL ? n : PULL;
	cursor_put(cur, r->windows + r->advert.address, n);
	return n;
}

size_t zcopy_pull(struct conn *c, struct lane_rx *r, struct cursor *cur, size_t most)
{
	struct lane_ctl *own = c->own;
	bool peek = r != &c->rx, withdrawn = false;
	size_t n = 0;
	if (most == 0 || cur->left == 0)
		return 0;
	if (r->advert.inside || possible(c->channel)) {
		atomic_store_explicit(&own->zcopy_busy, 1, memory_order_relaxed);
		atomic_thread_fence(memory_order_seq_cst); // (4)
		withdrawn = lane_void(r);
		if (!withdrawn)
			n = r->advert.inside ? copy_inside(r, most, cur) : copy(c->channel, r->advert.address, most, cur);
		r->advert.address += n;
		r->advert.left -= n;
		r->advert.taken += n;
		r->bytes += n;
		if (!peek)
			atomic_store_explicit(&own->zcopy_taken, r->advert.taken, memory_order_release);
		atomic_store_explicit(&own->zcopy_busy, 0, memory_order_release);
	}
	if (n == 0 && !withdrawn) { // the writer has to put it on the lane
		r->advert.stuck = true;
		if (r->advert.number == c->rx.advert.number)
			c->rx.advert.stuck = true;
		if (c->channel->owner == process_id())
			atomic_store(&c->channel->zcopy, IMPOSSIBLE);
		zcopy_reads(c, false);
	}
	return n;
}
