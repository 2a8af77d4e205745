// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A thread that blocks on one connection looks at the lane for a while (spin.c),
// then publishes that it sleeps (doorbell.c), looks once more and sleeps on
//
//	the TCP socket   stray bytes, FIN, errors; in TCP mode the bytes themselves
//	its perch        the peer put something on the lane, gave credit or died
//
// in ppoll, or, where it reads from the lane of one connection again and again, in epoll_wait
// on the perch, which then has the socket, too.
//
// It does not spin when the peer last ran on this CPU: the peer could not run. It lets
// that run, and looks.
//
// EINTR: a handler that has run since the call began, spinning or asleep, ends it
// with EINTR, or the bytes that it has moved, unless it has SA_RESTART, no timeout is set and no
// byte was moved: then the kernel would have restarted the call, and we go on.
#include "real.h"

#include "sleep.h"

#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

#include "channel.h"
#include "clock.h"
#include "config.h"
#include "conn.h"
#include "doorbell.h"
#include "nap.h"
#include "number.h"
#include "perch.h"
#include "process.h"
#include "receive.h"
#include "stream.h"
#include "transmit.h"

static const union sigval a_kick = {.sival_int = 0x45584453}; // "EXDS"

void sleep_kick(pid_t pid) { sigqueue(pid, SIGURG, a_kick); }

bool sleep_is_kick(const siginfo_t *info)
{
	bool ours = info->si_code == SI_QUEUE || info->si_code == SI_TIMER;
	return info->si_signo == SIGURG && ours && info->si_value.sival_int == a_kick.sival_int;
}

void sleep_kick_later(bool anew)
{
	enum { LEAST_MS = 1, MOST_MS = 256 };
	static _Atomic uint32_t owner; // a child has none of its parent's timers
	static _Atomic int timer, ms = LEAST_MS;
	struct sigevent kick = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGURG, .sigev_value = a_kick};
	int saved = errno, after = anew ? LEAST_MS : ms, made;
	// The system calls themselves: the C library's were in another library once.
	if (owner != process_id() && real.syscall(SYS_timer_create, CLOCK_MONOTONIC, &kick, &made) == 0) {
		timer = made;
		owner = process_id();
	}
	struct itimerspec due = {.it_value = {0, after * 1000000}};
	if (owner == process_id())
		real.syscall(SYS_timer_settime, timer, 0, &due, NULL);
	ms = 2 * after < MOST_MS ? 2 * after : MOST_MS;
	errno = saved;
}

struct sleep sleep_begin(uint64_t timeout_ns)
{
	return (struct sleep){true, 0, timeout_ns ? clock_ns() + timeout_ns : 0, sleep_signals, sleep_breaks, false};
}

HINT static bool ready(struct conn *c, uint32_t want)
{
	if (c->dead)
		return true;
	if (want & EPOLLIN)
		return rx_waits(c) || c->rx_eof;
	struct lane_tx copy = c->tx;
	return c->tx_mode == MODE_LANE && (c->tx_shut || lane_writable(&copy) || (copy.poor && lane_joined(&copy)) || atomic_load(&c->own->closed) ||
					   atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->closed) ||
					   atomic_load((_Atomic uint64_t *)(uintptr_t)&c->peer->go_back));
}

// interrupted: a handler has run that ends the call.
static bool interrupted(const struct sleep *s)
{
	return s->breaks != sleep_breaks || ((s->deadline || s->moved) && s->signals != sleep_signals);
}

bool sleep_restarts(struct sleep *s)
{
	bool restarts = s->breaks == sleep_breaks && !s->deadline;
	if (restarts)
		s->signals = sleep_signals;
	return restarts;
}

static bool spin(const struct sleep *of, struct conn *c, uint32_t want)
{
	bool in = want & EPOLLIN;
	if ((in ? c->rx_mode : c->tx_mode) != MODE_LANE)
		return false;
	bool found = false;
	if (channel_near(c->channel)) {
		for (int i = 0; !found && spin_near(i); i++)
			found = ready(c, want);
		return found;
	}
	struct spin *s = in ? &c->rx_spin : &c->tx_spin;
	uint64_t ns = spin_ns(s);
	if (!ns)
		return false;
	uint64_t begun = clock_ns(), now = begun, end = begun + ns;
	while (!found && now < end && !interrupted(of)) {
		now = spin_pass(begun, now);
		for (int i = 0; i < 32 && !(found = ready(c, want)); i++)
			clock_pause();
	}
	spin_result(s, found);
	return found;
}

// What a call holds while it sleeps, beside the connection.
struct bed {
	struct conn *c;
	_Atomic uint64_t *mask;
	struct perch *perch;
	int line; // -1: nobody can ring us
};

static void lie_down(const struct bed *b)
{
	if (b->line < 0)
		return;
	b->perch->sleeps++;
	if (b->mask == &b->c->own->tx_waiters)
		lane_ask(&b->c->tx);
	doorbell_watch(b->mask, b->perch->line[b->line].w);
	perch_arm(b->perch, b->line);
}

static void get_up(const struct bed *b)
{
	if (b->line < 0)
		return;
	b->perch->sleeps--;
	perch_disarm(b->perch, b->line);
	if (!b->perch->line[b->line].armed)
		doorbell_unwatch(b->c->channel, b->mask, b->perch->line[b->line].w);
}

static void hold(void *bed, int by)
{
	struct bed *b = bed;
	if (by == 0)
		b->line = -1;
	else if (by > 0)
		lie_down(b);
	else
		get_up(b);
}

int sleep_on(struct sleep *s, struct conn *c, int fd, uint32_t want)
{
	struct channel *ch = c->channel;
	bool in = want & EPOLLIN;
	s->rounds++;
	if (spin(s, c, want))
		return 0;
	if (interrupted(s))
		return EINTR;
	struct bed bed = {c, in ? &c->own->rx_waiters : &c->own->tx_waiters, perch_mine(), -1};
	if (bed.perch)
		bed.line = perch_line(bed.perch, ch);
	struct pollfd p[2] = {{fd, 0, 0}, {bed.line >= 0 ? bed.perch->epfd : -1, POLLIN, 0}};
	lie_down(&bed);
	if (in)
		p[0].events = c->rx_mode == MODE_TCP ? POLLIN : c->rx_fin ? 0 : POLLIN | POLLRDHUP;
	else
		p[0].events = c->tx_mode == MODE_TCP ? POLLOUT : c->rx_fin || c->rx_shut ? 0 : POLLRDHUP;
	int result = 0;
	stream_heed(c, fd);
	if (!ready(c, want)) {
		struct timespec t, *timeout = NULL;
		uint64_t ns = bed.line < 0 ? 1000000 : in ? ~0ull : tx_patience(c); // nobody can ring us
		if (s->deadline) {
			uint64_t now = clock_ns();
			uint64_t left = s->deadline > now ? s->deadline - now : 0;
			if (left < ns)
				ns = left;
		}
		if (ns != ~0ull) {
			t = (struct timespec){(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
			timeout = &t;
		}
		struct epoll_event got[NAP_EVENTS];
		bool alone = in && bed.line >= 0 && (!timeout || nap_timed()) && perch_alone(bed.perch, bed.line, c, fd);
		int n = alone ? nap_epoll(bed.perch->epfd, got, timeout, NULL, hold, &bed) : nap_poll(p, 2, timeout, NULL, hold, &bed);
		if (alone)
			perch_take(bed.perch, got, n);
		if (n < 0 && errno == EINTR)
			result = interrupted(s) ? EINTR : 0;
		else if (n == 0 && s->deadline && clock_ns() >= s->deadline)
			result = EAGAIN;
	}
	if (!s->moved)
		sleep_restarts(s);
	if (p[1].revents)
		perch_harvest(bed.perch);
	get_up(&bed);
	if (p[0].revents & ~POLLOUT)
		atomic_store(&c->rx_hint, 1);
	if (atomic_load(&ch->live) != 1)
		atomic_store(&c->rx_hint, 1);
	int now = number_now(c, fd);
	if (now < 0 || (p[0].revents & POLLNVAL && now == fd)) // closed
		result = EBADF;
	return result;
}

int sleep_ready(uint64_t *until, int fd, short events)
{
	const time_t century = 3000000000; // so that nanoseconds do not overflow
	struct timeval t = {0, 0};
	socklen_t n = sizeof t;
	if (fd < 0)
		return events | 1;
	uint64_t now = clock_ns();
	if (*until == 0) {
		real.getsockopt(fd, SOL_SOCKET, events & POLLIN ? SO_RCVTIMEO : SO_SNDTIMEO, &t, &n);
		if (t.tv_sec > century)
			t.tv_sec = century;
		*until = t.tv_sec || t.tv_usec ? now + (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_usec * 1000u : UINT64_MAX;
	}
	uint64_t left = *until > now ? *until - now : 0;
	struct timespec rest = {(time_t)(left / 1000000000u), (long)(left % 1000000000u)};
	struct pollfd p = {fd, events, 0};
	int r = ppoll(&p, 1, *until == UINT64_MAX ? NULL : &rest, NULL); // ours: it may have a lane by now
	if (r == 0)
		errno = EAGAIN;
	return r > 0 ? p.revents : 0;
}

bool sleep_goes_on(struct sleep_again *a, const sigset_t **mask)
{
	sigset_t all;
	if (errno != EINTR || !sleep_kicked(a->since))
		return false;
	a->since.kicks = sleep_kicks;
	if (!a->blocked) {
		sigfillset(&all);
		real.pthread_sigmask(SIG_SETMASK, &all, &a->old);
		a->blocked = true;
		if (!*mask)
			*mask = &a->old;
	}
	return sleep_signals == a->since.signals;
}

void sleep_ended(const struct sleep_again *a)
{
	int saved = errno;
	if (a->blocked)
		real.pthread_sigmask(SIG_SETMASK, &a->old, NULL);
	errno = saved;
}

bool sleep_moment(const struct sleep *s)
{
	real.poll(NULL, 0, 1);
	return s->signals == sleep_signals && !(s->deadline && clock_ns() >= s->deadline);
}
