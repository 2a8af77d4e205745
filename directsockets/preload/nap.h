// SPDX-License-Identifier: Apache-2.0
//
// Calls that may never return.
#ifndef NAP_H
#define NAP_H

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <time.h>

// A call that holds something, which it may never come to give back. by is -1 when the call has been given up, +1
// when that was a mistake and it goes on after all, and 0 in the child of a fork by a handler: there perches are gone, and
// nothing is counted before the call goes on.
struct nap {
	struct nap *outer;
	void (*hold)(void *call, int by);
	void *call;
	bool left; // given up, or nothing is counted
};
extern __thread struct nap *nap_innermost __attribute__((tls_model("initial-exec")));

// nap_begin: from here to nap_end handlers may leave the call.
static inline void nap_begin(struct nap *nap, void (*hold)(void *call, int by), void *call)
{
	*nap = (struct nap){nap_innermost, hold, call, false};
	atomic_signal_fence(memory_order_seq_cst);
	nap_innermost = nap;
}
void nap_resume(struct nap *nap);
static inline void nap_end(struct nap *nap)
{
	if (__builtin_expect(nap->left, 0))
		nap_resume(nap);
	nap_innermost = nap->outer;
	atomic_signal_fence(memory_order_seq_cst);
}

// nap_poll is ppoll for a call that holds something, from nap_begin to nap_end.
int nap_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
	     void (*hold)(void *call, int by), void *call);

// nap_epoll is epoll_pwait2, likewise, of up to NAP_EVENTS, where nap_timed says that there is
// such a call, or without a time.
enum { NAP_EVENTS = 16 };
int nap_epoll(int epfd, struct epoll_event *got, const struct timespec *timeout, const sigset_t *mask,
	      void (*hold)(void *call, int by), void *call);
bool nap_timed(void);

// nap_give_up gives up the calls of this thread.
void nap_give_up(void);
void nap_child(void); // after fork

#endif
