// SPDX-License-Identifier: Apache-2.0
//
// A blocking call that finds nothing to do: spin a little, then sleep.
#ifndef SLEEP_H
#define SLEEP_H

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>

#include "family.h"

struct sleep {
	bool begun;
	unsigned rounds;
	uint64_t deadline; // 0: none
	uint32_t signals, breaks; // counted so far
	bool moved; // the call has moved bytes: any handler ends it
};
struct sleep sleep_begin(uint64_t timeout_ns); // 0: none

// sleep_on waits until the connection may be ready for EPOLLIN or EPOLLOUT: 0,
// or EINTR or EAGAIN (time is up). No lock is held.
int sleep_on(struct sleep *s, struct conn *c, int fd, uint32_t want);

// sleep_restarts: the kernel would restart a call that has moved no bytes, if it was interrupted.
bool sleep_restarts(struct sleep *s);

// sleep_moment waits a millisecond for what no doorbell tells. False: any handler or the time
// ends the call.
bool sleep_moment(const struct sleep *s);

// Handlers of signals that have run on this thread, and of these, the ones without
// SA_RESTART; hook_signal.c counts.
extern __thread uint32_t sleep_signals __attribute__((tls_model("initial-exec")));
extern __thread uint32_t sleep_breaks __attribute__((tls_model("initial-exec")));
extern __thread uint32_t sleep_kicks __attribute__((tls_model("initial-exec"))); // likewise, of ours (engage.c)

// sleep_kicked: since then only our handler ran, which is none of the program's. What the kernel ends
// with EINTR because of it goes on.
struct sleep_since {
	uint32_t signals, kicks;
};
static inline struct sleep_since sleep_now(void) { return (struct sleep_since){sleep_signals, sleep_kicks}; }
static inline bool sleep_kicked(struct sleep_since s) { return sleep_kicks != s.kicks && sleep_signals == s.signals; }

// sleep_kick interrupts whatever a process does. sleep_is_kick: who waits for signals has got that one,
// which is none of the program's.
void sleep_kick(pid_t pid);
bool sleep_is_kick(const siginfo_t *info);

// sleep_kick_later does so to this process after a while, a longer one each time if it gets nowhere.
void sleep_kick_later(bool anew);

// sleep_disturbed: the call has failed because of a kick alone, and is to begin anew.
static inline bool sleep_disturbed(struct sleep_since *s)
{
	if (errno != EINTR || !sleep_kicked(*s))
		return false;
	*s = sleep_now();
	return true;
}

// sleep_ready waits until a call that a kick alone has ended can go on, for POLLIN or POLLOUT: what poll
// tells. 0: no, errno says why: EAGAIN after the time that its socket gives it (SO_RCVTIMEO, SO_SNDTIMEO).
// until is 0 at first; fd is -1 where there is nothing to wait for.
int sleep_ready(uint64_t *until, int fd, short events);

// UNKICKED is what a call gives that a kick does not end: the kernel does not restart what has a timeout.
#define UNKICKED(fd, events, call) \
	({ \
		struct sleep_since since_ = sleep_now(); \
		uint64_t until_ = 0; \
		ssize_t got_; \
		while ((got_ = (call)) < 0 && sleep_disturbed(&since_) && sleep_ready(&until_, fd, events)) \
			; \
		got_; \
	})

// sleep_goes_on: the call that began at `since` has failed because of a kick alone, and is to sleep again,
// with *mask. All signals are blocked then, so that none of the program's comes before it is asleep.
// sleep_ended unblocks them.
struct sleep_again {
	struct sleep_since since;
	bool blocked;
	sigset_t old;
};
bool sleep_goes_on(struct sleep_again *a, const sigset_t **mask);
void sleep_ended(const struct sleep_again *a);

#endif
