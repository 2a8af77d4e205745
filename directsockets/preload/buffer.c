// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// What a program writes out of a registered buffer the reader copies once, out of its
// own mapping of our memory file (zcopy.c). A buffer is a run of whole windows of that file,
// which the lanes of the channel do without meanwhile (pool.c).
//
//	exn_buffer ──► the connection is on a lane whose peer takes buffers,
//	               and there is a run ──────────► the run, in our mapping
//	               else ────────────────────────► ordinary memory
//
// The program has the memory until it frees it, whatever becomes of the connection and the
// channel. So the mapping stays as long as a buffer lies in it: a process that lets go
// of the channel leaves it to the last of its buffers.
//
// fork: the child has the mapping too, so both have the buffer, and share its bytes. It is
// the lanes' again when both have freed it, ended, or become another program; the run counts them.
// Each process has a list of its own. A child that finds there what another thread was just about
// to make or free is not counted for it: it may read it as long as it is there, but
// never gives it back.
//
// The list has a lock, which is held with all signals blocked: a handler may close a
// connection, and with it come here. A forked child makes it anew.
#include "real.h"

#include "buffer.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "budget.h"
#include "channel.h"
#include "hook.h"
#include "transmit.h"

enum { PAGE = 4096 };

struct buffer {
	struct buffer *next;
	uint8_t *at;
	size_t size;        // from there on, in whole pages or windows
	struct channel *ch; // NULL: ordinary memory
	uint32_t serial;    // of it
	struct pool_run run;
	bool counted; // we are among those whom the run counts,
	bool forking; // a child that is about to be made is,
	bool left;    // and we were before buffer_leave
	uint8_t *base;
	uint64_t mapped; // the file at base
	bool kept;       // the channel needs the mapping no more
};

static struct buffer *_Atomic list;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void enter(sigset_t *was)
{
	sigset_t all;
	sigfillset(&all);
	real.pthread_sigmask(SIG_SETMASK, &all, was);
	pthread_mutex_lock(&mutex);
}

static void leave(const sigset_t *was)
{
	pthread_mutex_unlock(&mutex);
	real.pthread_sigmask(SIG_SETMASK, was, NULL);
}

static void *ordinary(struct buffer *b, size_t size)
{
	b->size = (size + PAGE - 1) & ~(size_t)(PAGE - 1);
	b->at = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	return b->at;
}

// registers: writes on c go by a lane, as far as we know, whose peer takes buffers.
static bool registers(const struct conn *c)
{
	return conn_engaged(c) && !c->dead && !tx_barred(c) && !c->tx_shut && atomic_load(&c->channel->live) == 1 &&
	       c->channel->features & FEATURE_BUFFER && !load_acquire(&c->peer->go_back) && !load_acquire(&c->peer->closed);
}

static bool lend(struct buffer *b, struct channel *ch, size_t size)
{
	const struct lane_memory *m = &ch->own;
	uint64_t windows = (uint64_t)m->windows * m->window;
	if (size > windows || !pool_run(&ch->pool, (uint32_t)((size + m->window - 1) / m->window), &b->run))
		return false;
	b->at = m->base + m->size - windows + (uint64_t)b->run.window * m->window;
	b->size = (size_t)b->run.count * m->window;
	b->ch = ch;
	b->serial = ch->serial;
	b->counted = true;
	b->base = m->base;
	b->mapped = m->size;
	return true;
}

EXPORT void *exn_ds_buffer(int fd, size_t size)
{
	HOOK();
	sigset_t was;
	if (size == 0) {
		errno = EINVAL;
		return NULL;
	}
	struct buffer *b = size > PTRDIFF_MAX - PAGE ? NULL : calloc(1, sizeof *b);
	if (!b) {
		errno = ENOMEM;
		return NULL;
	}
	int saved = errno;
	struct conn *c = conn_get(fd);
	bool lent = c && conn_enter(c, fd) && registers(c) && lend(b, c->channel, size);
	if (!lent && ordinary(b, size) == MAP_FAILED) {
		if (c)
			conn_put(c);
		free(b);
		errno = ENOMEM;
		return NULL;
	}
	enter(&was);
	b->next = list;
	list = b;
	leave(&was);
	if (c)
		conn_put(c); // before that the channel could not end
	errno = saved;
	return b->at;
}

static struct buffer *_Atomic *find(const void *p)
{
	for (struct buffer *_Atomic *l = &list; *l; l = (struct buffer *_Atomic *)&(*l)->next)
		if ((uint8_t *)(uintptr_t)p >= (*l)->at && (uint8_t *)(uintptr_t)p < (*l)->at + (*l)->size)
			return l;
	return NULL;
}

EXPORT int exn_ds_buffer_registered(int fd, const void *p)
{
	HOOK();
	sigset_t was;
	int saved = errno;
	struct conn *c = conn_get(fd);
	bool yes = c && registers(c);
	if (yes) {
		enter(&was);
		struct buffer *_Atomic *l = find(p);
		yes = l && (*l)->ch == c->channel && (*l)->serial == c->channel->serial && !(*l)->kept;
		leave(&was);
	}
	if (c)
		conn_put(c);
	errno = saved;
	return yes;
}

static bool any_in(const void *base)
{
	for (struct buffer *b = list; b; b = b->next)
		if (b->ch && b->base == base)
			return true;
	return false;
}

EXPORT void exn_ds_buffer_free(void *p)
{
	HOOK();
	sigset_t was;
	int saved = errno;
	enter(&was);
	struct buffer *_Atomic *l = p ? find(p) : NULL;
	struct buffer *b = l && (*l)->at == p ? *l : NULL;
	bool unmap = false;
	if (b) {
		*l = b->next;
		if (b->counted)
			pool_return(&b->ch->pool, &b->run);
		unmap = b->kept && !any_in(b->base);
	}
	leave(&was);
	if (b && !b->ch)
		munmap(b->at, b->size);
	if (unmap)
		channel_unmap(b->base, b->mapped);
	free(b);
	errno = saved;
}

bool buffer_keep(const void *base)
{
	sigset_t was;
	if (!list)
		return false;
	enter(&was);
	bool keep = any_in(base);
	for (struct buffer *b = list; b; b = b->next)
		b->kept |= b->ch && b->base == base;
	leave(&was);
	return keep;
}

void buffer_fork(void)
{
	sigset_t was;
	if (!list)
		return;
	enter(&was);
	for (struct buffer *b = list; b; b = b->next)
		b->forking = b->counted && pool_share(&b->ch->pool, &b->run);
	leave(&was);
}

void buffer_forked(bool child)
{
	sigset_t was;
	if (!list)
		return;
	enter(&was);
	for (struct buffer *b = list; b; b = b->next) {
		if (b->forking && !child)
			pool_return(&b->ch->pool, &b->run);
		b->forking = false;
	}
	leave(&was);
}

void buffer_child(bool cloned)
{
	mutex = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
	for (struct buffer *b = list; b; b = b->next) {
		b->counted = cloned ? b->counted && pool_share(&b->ch->pool, &b->run) : b->forking;
		b->forking = false;
	}
}

void buffer_leave(void)
{
	sigset_t was;
	if (!list)
		return;
	enter(&was);
	for (struct buffer *b = list; b; b = b->next)
		if (b->counted && !pool_last(&b->ch->pool, &b->run)) {
			pool_return(&b->ch->pool, &b->run);
			b->counted = false;
			b->left = true;
		}
	leave(&was);
}

// own_bytes puts memory of ours in the place of a run that the others have freed.
static void own_bytes(struct buffer *b)
{
	void *p = mmap(NULL, b->size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return; // then it is shared with the lanes
	memcpy(p, b->at, b->size);
	mremap(p, b->size, b->size, MREMAP_MAYMOVE | MREMAP_FIXED, b->at);
}

void buffer_stay(void)
{
	sigset_t was;
	if (!list)
		return;
	enter(&was);
	for (struct buffer *b = list; b; b = b->next)
		if (b->left) {
			b->left = false;
			b->counted = pool_share(&b->ch->pool, &b->run);
			if (!b->counted)
				own_bytes(b);
		}
	leave(&was);
}

void buffer_exit(void)
{
	sigset_t was;
	if (!list)
		return;
	enter(&was);
	for (struct buffer *b = list; b; b = b->next)
		if (b->counted) {
			pool_return(&b->ch->pool, &b->run);
			b->counted = false;
		}
	leave(&was);
}
