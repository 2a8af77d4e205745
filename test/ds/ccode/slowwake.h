// SPDX-License-Identifier: Apache-2.0
//
// slowwake.h is included before each source of a library whose wake-ups are late (slowwake.c), as
// they are on some virtual machines: what the library wakes others by, and its yields, go by way
// of it.
#ifndef SLOWWAKE_H
#define SLOWWAKE_H

#include <pthread.h>
#include <sched.h>
#include <signal.h>

void slow_wake(void);
int slow_yield(void);
int slow_sigqueue(pid_t pid, int signo, const union sigval value);
int slow_unlock(pthread_mutex_t *m);

#define DOORBELL_LATE() slow_wake()
#define sched_yield slow_yield
#define sigqueue slow_sigqueue
#define pthread_mutex_unlock slow_unlock

#endif
