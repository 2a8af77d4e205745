// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A thread that sleeps in a call of ours can be cancelled, and a signal handler can
// leave any call by longjmp. Nobody then puts what the call holds, and a connection
// that is closed would wait for its end for ever. So each thread has a list of what its
// calls hold, the innermost first: the connection, and what there is while they sleep;
// more than that if handlers make calls. Cancellation and longjmp (hook_signal.c) give
// them up while their frames are still there.
//
// A handler may also jump to a place of its own, which cannot be told from leaving.
// Then the call below finds itself given up when it goes on, and holds again
// what it held: too late only if all was closed and used anew meanwhile.
//
// No lock is held where handlers run, but for those of faults (lock.c).
#include "real.h"

#include "nap.h"

#include <errno.h>

#include "cancel.h"
#include "zcopy.h"

__thread struct nap *nap_innermost __attribute__((tls_model("initial-exec")));
__thread struct cancel *cancel_outermost __attribute__((tls_model("initial-exec")));

void nap_give_up(void)
{
	struct nap *all = nap_innermost;
	nap_innermost = NULL;
	cancel_left();
	zcopy_end(); // while what it is of is held
	for (; all; all = all->outer) {
		if (!all->left)
			all->hold(all->call, -1);
		all->left = true;
	}
}

void nap_child(void)
{
	for (struct nap *n = nap_innermost; n; n = n->outer) {
		n->hold(n->call, 0);
		n->left = true;
	}
}

static void cancelled(void *unused)
{
	(void)unused;
	nap_give_up();
}

void nap_resume(struct nap *nap)
{
	if (nap->outer && nap->outer->left)
		nap_resume(nap->outer);
	nap->hold(nap->call, +1);
	nap->left = false;
}

int nap_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
	     void (*hold)(void *call, int by), void *call)
{
	struct nap nap;
	int r;
	nap_begin(&nap, hold, call);
	CANCELLED(cancelled, r = real.ppoll(fds, n, timeout, mask));
	nap_end(&nap);
	return r;
}

static _Atomic bool untimed; // the kernel has no epoll_pwait2, or a filter of system calls forbids it

bool nap_timed(void) { return real.epoll_pwait2 && !untimed; }

int nap_epoll(int epfd, struct epoll_event *got, const struct timespec *timeout, const sigset_t *mask,
	      void (*hold)(void *call, int by), void *call)
{
	struct nap nap;
	int r;
	nap_begin(&nap, hold, call);
	CANCELLED(cancelled, r = timeout ? real.epoll_pwait2(epfd, got, NAP_EVENTS, timeout, mask)
					 : real.epoll_pwait(epfd, got, NAP_EVENTS, -1, mask));
	if (r < 0 && timeout && errno != EINTR) {
		untimed = true;
		r = 0;
	}
	nap_end(&nap);
	return r;
}
