// SPDX-License-Identifier: Apache-2.0
//
// Sleeps of a call that may never return.
#ifndef NAP_H
#define NAP_H

#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/epoll.h>
#include <time.h>

// nap_poll is ppoll for a call that holds something. by is -1 when the call has been
// given up, +1 when that was a mistake and it goes on after all.
int nap_poll(struct pollfd *fds, nfds_t n, const struct timespec *timeout, const sigset_t *mask,
	     void (*hold)(void *call, int by), void *call);

// nap_epoll is epoll_pwait2, likewise, of up to NAP_EVENTS, where nap_timed says that there is
// such a call, or without a time.
enum { NAP_EVENTS = 16 };
int nap_epoll(int epfd, struct epoll_event *got, const struct timespec *timeout, const sigset_t *mask,
	      void (*hold)(void *call, int by), void *call);
bool nap_timed(void);

// nap_give_up gives up the calls of this thread that sleep.
void nap_give_up(void);

#endif
