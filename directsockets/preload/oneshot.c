// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A one-shot member is armed by ADD and MOD, and the kernel disarms it in the same
// moment in which it gives the event to a call. A member that becomes ours has to go on
// in the same state: to take it for armed after it has fired would have two threads
// handle one connection; to take it for fired would let it sleep for good.
//
// Only the kernel knows, and fdinfo of the set tells: of a member that has fired no
// event is left in the mask. But reading that and taking the member out are two steps,
// and in between it could fire. It fires only into a call that takes events out of the
// set, and all such calls of this process pass through the library. So:
//
//	calls                              who engages, with the set's lock
//	  inside + 1             (1)         shut = true             (2)
//	  shut? inside - 1, wait for         inside? not now
//	  the lock, once more                read fdinfo, DEL
//	  epoll_wait in the kernel           shut = false
//	  inside - 1
//
// (1) and (2) are sequentially consistent, so one of both sees the other: while fdinfo
// is read and until the member is out, nobody is in the kernel. What a call has brought
// before is in fdinfo, whether or not its caller has looked at it. MOD and ADD take the
// lock.
//
// A thread that sleeps in the set keeps it from being shut. Programs with one thread
// that waits engage when that comes back. Of several there is always one asleep: so they are
// kicked (member.c), and held up before they go in again, until the last is out and one
// of them has engaged. It takes some ten microseconds; who is not out within HOLD_NS was
// perhaps cancelled inside, or finds no CPU. After VAIN times in a row nobody is held up any
// more, and connections stay on TCP unless the set happens to be empty. Who is kicked in
// vain must not go in again before all are out either: it would come back at once, and so
// would the others, none ever finding itself the last.
//
// An armed edge-triggered member is due whenever it is ready: it was not ready when it
// was armed, or the event from then is still to come. So it becomes ours as after MOD.
//
// test/memmodel/channel has the model (oneshot). What a forked child takes from a set
// that it shares is not seen here: as epset.c says, each of both is told.
#include "real.h"

#include "oneshot.h"

#include <stdlib.h>
#include <string.h>

#include "clock.h"

#define HOLD_NS 20000000
#define NAP_NS 20000
#define VAIN 3

// What the kernel leaves in the mask of a member that has fired.
#define PRIVATE (EPOLLWAKEUP | EPOLLONESHOT | EPOLLET | EPOLLEXCLUSIVE)

bool oneshot_enter(struct epset *e)
{
	for (;;) {
		single_inc(&e->inside, single_thread());
		if (!atomic_load(&e->shut))
			return true;
		atomic_fetch_sub(&e->inside, 1);
		if (!epset_lock(e))
			return false;
		epset_unlock(e);
	}
}

void oneshot_leave(struct epset *e) { single_drop(&e->inside, single_thread()); }

bool oneshot_held(struct epset *e)
{
	static const struct timespec nap = {0, NAP_NS};
	bool leaving = e->kicked && e->native > 0 && e->nours == 0;
	uint64_t until = e->hold, now;
	if (until == 0 && !leaving)
		return false;
	now = clock_ns();
	if (now >= until && atomic_compare_exchange_strong(&e->hold, &until, 0) && until && e->inside > 0)
		e->vain++;
	if (now >= until && (!leaving || now - e->kicked_ns > HOLD_NS))
		return false;
	if (e->inside > 0)
		real.ppoll(NULL, 0, &nap, NULL);
	return true;
}

// shut lets nobody take events from now on. Somebody is inside: false, and *why if
// that has been so for too long.
static bool shut(struct epset *e, enum reason *why)
{
	if (e->shut)
		return true;
	atomic_store(&e->shut, true);
	if (atomic_load(&e->inside) == 0) {
		e->hold = 0;
		e->vain = 0;
		return true;
	}
	atomic_store(&e->shut, false);
	if (e->vain >= VAIN) {
		*why = REASON_NESTED;
	} else if (e->hold == 0) {
		e->hold = clock_ns() + HOLD_NS;
		member_kick(e);
	}
	return false;
}

void oneshot_open(struct epset *e) { atomic_store(&e->shut, false); }

// fired_by looks at a line of fdinfo: "tfd: 7 events: 19 data: 0 pos:0 ino:b9c4 sdev:8".
static int fired_by(const char *line, const struct member *m)
{
	const char *events = strstr(line, " events:"), *ino = strstr(line, " ino:");
	if (strncmp(line, "tfd:", 4) != 0 || atoi(line + 4) != m->key || !events || !ino)
		return -1;
	if (strtoull(ino + 5, NULL, 16) != m->c->ino)
		return -1;
	return !(strtoul(events + 8, NULL, 16) & ~(unsigned long)PRIVATE);
}

// fired: 1 if the kernel has reported the member since the program asked last, 0 if not,
// -1 if that cannot be told.
static int fired(const struct epset *e, const struct member *m)
{
	char path[48], text[1024]; // some lines
	size_t have = 0;
	int r = -1;
	if (m->absent)
		return 1;
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", e->epfd);
	int f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return -1;
	ssize_t n;
	while (r < 0 && have < sizeof text - 1 && (n = real.read(f, text + have, sizeof text - 1 - have)) > 0) {
		have += (size_t)n;
		text[have] = 0;
		char *line = text, *end;
		for (; r < 0 && (end = strchr(line, '\n')); line = end + 1) {
			*end = 0;
			r = fired_by(line, m);
		}
		have = strlen(line);
		memmove(text, line, have);
	}
	real.close(f);
	return r;
}

bool oneshot_own(struct epset *e, struct member *m, enum reason *why)
{
	const struct epoll_event ev = {m->events, m->data};
	if (!shut(e, why))
		return false;
	int is = fired(e, m);
	if (is < 0 || !member_own(e, m, true)) {
		*why = is < 0 ? REASON_NESTED : REASON_MEMORY;
		return false;
	}
	member_ask(m, &ev);
	m->disabled = is;
	m->absent = false;
	return true;
}
