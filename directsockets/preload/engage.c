// SPDX-License-Identifier: Apache-2.0
//
// The step of a connection from ATTACHED to ENGAGED, and from RESTING to ATTACHED.
//
// A call, which may sleep in the kernel on this socket or move TCP bytes, raises
// `users` first and then looks at the state; engaging sets ENGAGING first and then
// looks at `users`. Both are sequentially consistent, so at least one sees the
// other: either the call turns into a lane call, which waits for the locks, or
// engaging gives up and tries later. Where there is nobody else, `users` is
// raised without that (single.h). Closing is such a call. It waits for who is engaging, since
// that one uses the descriptor; and who gives up must not undo what a close has set that looked
// before. Models: test/memmodel/channel (engage, closing).
//
// While it holds both locks, engaging also compares our count of stream bytes
// with the kernel's: bytes that moved through a call without a hook (stdio,
// a raw system call) make the offsets N meaningless, so such a connection
// stays on TCP. In ESTABLISHED the kernel counts exactly (bytes_acked has the
// SYN of an active open in it).
#include "real.h"

#include "conn.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <string.h>
#include <sys/ioctl.h>

#include "clock.h"
#include "config.h"
#include "epset.h"
#include "heirs.h"
#include "process.h"
#include "receive.h"
#include "sleep.h"
#include "zcopy.h"

enum count { COUNTED, UNCOUNTED, MOVING };

// total asks what came up to the socket, and what the peer has of what went down.
static bool total(const struct conn *c, int fd, uint64_t *came, uint64_t *went)
{
	struct tcp_info t;
	socklen_t n = sizeof t;
	memset(&t, 0, sizeof t);
	if (real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) < 0 || t.tcpi_state != ESTABLISHED)
		return false;
	*came = t.tcpi_bytes_received;
	*went = t.tcpi_bytes_acked - (c->active ? 1 : 0);
	return true;
}

// counted: has the kernel passed on just the bytes that we have counted? It is asked for those on
// their way (in, out) after the totals, which may have grown by then: our count is wrong only if it
// fits no total from that of before to that of after, and not decided if it fits one between them.
static enum count counted(const struct conn *c, int fd)
{
	uint64_t came, went, came_now, went_now;
	int in = 0, out = 0;
	if (!total(c, fd, &came, &went))
		return MOVING; // it ends
	for (int i = 0; i < 4; i++, came = came_now, went = went_now) {
		if (real.ioctl(fd, SIOCOUTQ, &out) < 0 || real.ioctl(fd, FIONREAD, &in) < 0)
			return UNCOUNTED;
		uint64_t up = c->tcp_rx + (uint64_t)in, down = c->tcp_tx - (uint64_t)out;
		if (came == up && went == down)
			return COUNTED;
		if (!total(c, fd, &came_now, &went_now))
			return MOVING;
		if (up - came > came_now - came || down - went > went_now - went)
			return UNCOUNTED;
	}
	return MOVING;
}

// undecided ends ENGAGING with another state, unless the last descriptor was closed by a thread
// that had looked at the state before (conn_close). It made one user more, so nothing was done.
static bool undecided(struct conn *c, enum conn_state to)
{
	uint32_t is = CONN_ENGAGING;
	return atomic_compare_exchange_strong(&c->state, &is, to);
}

static void leave_attached(struct conn *c, int fd, enum conn_state to, enum reason why)
{
	atomic_store(&c->reason, why);
	if (!undecided(c, to))
		return; // finish has counted it
	atomic_fetch_sub(&conn_attached, 1);
	if (to == CONN_OFF)
		conn_stays(c, fd, why);
}

// A kick is passed on to those of our family who alone hold what we had a lane for: of them
// the peer does not know.
void conn_kicked(void)
{
	int saved = errno;
	uint64_t others = 0, own = family_own();
	sleep_kicks++;
	zcopy_end();
	conn_heed();
	for (struct conn *c = NULL; own && (c = family_conn_next(c)) != NULL;)
		if (c->state == CONN_ENGAGED && c->owner == process_id() && !(c->holders & own))
			others |= c->holders;
	family_kick(others);
	errno = saved;
}

static void kicked(int signo)
{
	(void)signo;
	conn_kicked();
}

// kickable lets peers interrupt us (channel_kick), unless the program has its own
// use for the signal. This handler is none of the program's (hook_signal.c): a call that has
// moved bytes goes on after it.
static void kickable(void)
{
	static _Atomic int once;
	struct sigaction is, a = {.sa_handler = kicked, .sa_flags = SA_RESTART};
	if (atomic_load(&once) || atomic_exchange(&once, 1))
		return;
	sigemptyset(&a.sa_mask);
	if (sigaction(SIGURG, NULL, &is) == 0 && is.sa_handler == SIG_DFL && !(is.sa_flags & SA_SIGINFO))
		real.sigaction(SIGURG, &a, NULL);
}

void conn_unkickable(void)
{
	struct sigaction is, none = {.sa_handler = SIG_DFL};
	if (real.sigaction(SIGURG, NULL, &is) == 0 && is.sa_handler == kicked)
		real.sigaction(SIGURG, &none, NULL);
}

void conn_try_engage(struct conn *c, int fd)
{
	if (rendezvous_held || conn_never != REASON_NONE)
		return;
	if (c->calls < c->due || c->owner != process_id() || (c->nonblock && !c->watched) || conn_shared(c))
		return;
	int saved = errno;
	c->due = c->calls + 7; // odd: not each time at the same call of what a program repeats
	if (!lock_try(&c->rx_lock, &c->sole))
		return;
	if (!lock_try(&c->tx_lock, &c->sole)) {
		lock_give(&c->rx_lock);
		return;
	}
	uint32_t is = CONN_ATTACHED;
	bool alone = false; // the peer has waited too long for our answer, and left the lane
	if (atomic_compare_exchange_strong(&c->state, &is, CONN_ENGAGING)) {
		enum reason why = REASON_NONE;
		enum count count;
		if (atomic_load(&c->users) != 1) {
			undecided(c, CONN_ATTACHED);
		} else if (atomic_load(&c->channel->live) != 1) {
			leave_attached(c, fd, CONN_OFF, REASON_PEER_GONE);
		} else if (atomic_load(&c->peer->generation) != c->generation) {
			alone = !c->engaged;
			if (alone)
				undecided(c, CONN_ATTACHED);
			else
				leave_attached(c, fd, CONN_OFF, REASON_PEER_GONE);
		} else if (c->exposed || c->passes) {
			leave_attached(c, fd, CONN_OFF, REASON_SHARED);
		} else if (heirs_left(c, fd)) {
			conn_rests(c, clock_ns());
			leave_attached(c, fd, CONN_RESTING, REASON_SHARED);
		} else if ((count = counted(c, fd)) == UNCOUNTED) {
			leave_attached(c, fd, CONN_OFF, REASON_UNCOUNTED);
		} else if (count == MOVING) {
			undecided(c, CONN_ATTACHED); // not now
		} else if (c->engaged && !rx_quiet(c, fd)) {
			undecided(c, CONN_ATTACHED);
		} else if (!epset_engage(c, fd, &why)) {
			if (why == REASON_NONE)
				undecided(c, CONN_ATTACHED); // not now
			else
				leave_attached(c, fd, CONN_OFF, why);
		} else {
			if (!config.test_rx_off)
				rx_consent(c, fd);
			c->tx_back = c->overdue = false;
			atomic_store(&c->rx_hint, 1);
			c->engaged = true;
			conn_lowat(c, fd, 1);
			kickable();
			leave_attached(c, fd, CONN_ENGAGED, REASON_NONE);
			conn_log(c, "has lane %u to %s (process %u)", c->lane, c->channel->program, c->channel->pid);
		}
	}
	lock_give(&c->tx_lock);
	lock_give(&c->rx_lock);
	if (alone)
		rendezvous_release(c);
	errno = saved;
}

void conn_resume(struct conn *c, int fd)
{
	enum { AGAIN = 8, SECOND = 1000000000 };
	if (c->calls < c->due || c->owner != process_id())
		return;
	c->due = c->calls + AGAIN;
	uint64_t now = clock_ns(), rested = now - c->resting_since;
	if (now < c->resting_until)
		return;
	c->resting_until = now + (rested < SECOND ? rested / 8 : SECOND / 8);
	uint32_t is = CONN_RESTING;
	if (!heirs_left(c, fd) && atomic_compare_exchange_strong(&c->state, &is, CONN_ATTACHED)) {
		atomic_fetch_add(&conn_attached, 1);
		c->due = 0;
	}
}

bool conn_decided(struct conn *c)
{
	// Another thread is engaging it: the lock tells when it has decided.
	while (atomic_load(&c->state) == CONN_ENGAGING && lock_take(&c->rx_lock, &c->sole) != LOCK_REFUSED)
		lock_give(&c->rx_lock);
	return conn_engaged(c);
}
