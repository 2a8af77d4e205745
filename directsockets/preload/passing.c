// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A server may accept in one process and pass the connection to another, as node's cluster
// does; both hold it until the first one closes it. Only who holds it alone may take it
// to a lane, and nobody can ask the kernel for that. So whoever is the last of a family
// to close what it has passed on says so, where only holders of the socket can read it:
// in two words of its open file that mean nothing without O_ASYNC or an owner to signal.
//
//	signal number (F_SETSIG)      SIGIO: it is free, the one message has it that
//	                              it was passed in, or who received that
//	type of owner (F_SETOWN_EX)   F_OWNER_PGRP, of nobody, or an owner that the program has
//	                              named: it went ways in which more than one may have it; for good
//
// Who receives a connection counts as for one that it has accepted, and looks whether it is
// free when it would look for its peer. Then it takes the first word back, and has what who
// accepts has: it may pass it on.
//
// Invariant: where the first word is SIGIO, and the second not set, one message or receiver
// holds the socket and nobody else. Of what could break it
//
//	passed on twice                is not said to be free
//	passed on, not yet found free  sets the second word before; also if who passes it on does
//	                               not know it, or has only peeked at the message
//	another program got it         is not said to be free: exec, posix_spawn (heirs.c)
//
// A process that does not use this library may receive it, pass it on and keep it; that
// is not seen. The model is test/memmodel/channel: passing.
#include "real.h"

#include "passing.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>

#include "config.h"
#include "conn.h"
#include "files.h"
#include "heirs.h"
#include "tuple.h"

enum { FREE = SIGIO }; // with another signal who asks for SIGIO without us would get that

static bool is_free(int fd)
{
	struct f_owner_ex o = {.type = F_OWNER_PGRP};
	return real.fcntl(fd, F_GETSIG) == FREE && real.fcntl(fd, F_GETOWN_EX, &o) == 0 && o.type != F_OWNER_PGRP && o.pid == 0;
}

bool passing_spoilt(int fd)
{
	struct f_owner_ex o = {0};
	return real.fcntl(fd, F_GETOWN_EX, &o) == 0 && (o.type == F_OWNER_PGRP || o.pid);
}

static bool established(int fd, struct tcp_info *t)
{
	socklen_t n = sizeof *t;
	memset(t, 0, sizeof *t);
	return real.getsockopt(fd, IPPROTO_TCP, TCP_INFO, t, &n) == 0 && t->tcpi_state == ESTABLISHED;
}

static void spoil(int fd)
{
	struct tcp_info t;
	if (!passing_spoilt(fd) && established(fd, &t))
		real.fcntl(fd, F_SETOWN_EX, &(struct f_owner_ex){.type = F_OWNER_PGRP});
}

static bool equal(const struct tcp_info *a, const struct tcp_info *b)
{
	return a->tcpi_bytes_received == b->tcpi_bytes_received && a->tcpi_bytes_acked == b->tcpi_bytes_acked &&
	       a->tcpi_bytes_sent == b->tcpi_bytes_sent && a->tcpi_bytes_retrans == b->tcpi_bytes_retrans &&
	       a->tcpi_notsent_bytes == b->tcpi_notsent_bytes;
}

static uint16_t server(int fd, bool active)
{
	struct sockaddr_storage a;
	socklen_t n = sizeof a;
	int r = active ? getpeername(fd, (struct sockaddr *)&a, &n) : getsockname(fd, (struct sockaddr *)&a, &n);
	return r == 0 ? tuple_port((struct sockaddr *)&a, n) : 0;
}

// position finds out what has been read and written before, and who connected: bytes_acked
// counts the SYN of an active open, and bytes_sent does not. False: too much is under way.
static bool position(struct conn *c, int fd)
{
	struct tcp_info t, later;
	int in, out;
	for (int i = 0; i < 8; i++) {
		if (!established(fd, &t) || real.ioctl(fd, FIONREAD, &in) < 0 || real.ioctl(fd, SIOCOUTQ, &out) < 0 ||
		    !established(fd, &later))
			return false;
		if (!equal(&t, &later))
			continue;
		uint64_t written = t.tcpi_bytes_sent - t.tcpi_bytes_retrans + t.tcpi_notsent_bytes;
		uint64_t syn = t.tcpi_bytes_acked + (uint64_t)out - written;
		if (syn > 1)
			return false;
		c->active = syn;
		c->tcp_rx = t.tcpi_bytes_received - (uint64_t)in;
		c->tcp_tx = written;
		c->port = server(fd, syn);
		return true;
	}
	return false;
}

// each calls f for each descriptor in a message.
static void each(const struct msghdr *h, void (*f)(int fd))
{
	const char *all = h->msg_control;
	size_t room = config.off ? 0 : real_size(h->msg_controllen), len;
	int saved = errno;
	for (size_t at = 0; at < room && room - at >= sizeof(struct cmsghdr); at += CMSG_ALIGN(len)) {
		struct cmsghdr k;
		memcpy(&k, all + at, sizeof k);
		len = real_size(k.cmsg_len);
		if (len < sizeof k || len > room - at)
			break;
		if (k.cmsg_level != SOL_SOCKET || k.cmsg_type != SCM_RIGHTS)
			continue;
		for (size_t i = CMSG_LEN(0); i + sizeof(int) <= len; i += sizeof(int)) {
			int fd;
			memcpy(&fd, all + at + i, sizeof fd);
			if (fd >= 0)
				f(fd);
		}
	}
	errno = saved;
}

static void begin(int fd)
{
	struct conn *c = conn_get(fd);
	if (!c) {
		spoil(fd);
		return;
	}
	if (!passing_ours(c, fd))
		spoil(fd);
	atomic_fetch_add(&c->passes, 1); // before it lets go: or another thread looks for the peer again
	if (conn_decided(c))
		conn_stay(c, fd, REASON_SHARED);
	else
		rendezvous_release(c);
	conn_put(c);
}

static void unsent(int fd)
{
	struct conn *c = conn_get(fd);
	if (!c)
		return;
	if (c->passes > 0) // the number may be another connection's by now
		c->passes--;
	conn_put(c);
}

void passing_begin(const struct msghdr *h) { each(h, begin); }

void passing_end(const struct msghdr *h, bool sent)
{
	if (!sent)
		each(h, unsent);
}

static void came(int fd)
{
	struct tcp_info t;
	if (!established(fd, &t))
		return;
	struct conn *c = conn_new(fd, CONN_OFF, false); // tuple_identify asks whether it blocks
	if (!c || c->reason != REASON_NONE)
		return;
	c->received = true;
	atomic_store(&c->state, CONN_COUNTING);
}

void passing_came(struct msghdr *h, int flags) { each(h, flags & MSG_PEEK ? spoil : came); }

bool passing_ours(struct conn *c, int fd)
{
	// A call of another thread might move bytes meanwhile, and count them twice.
	if (c->received && c->users == 1 && is_free(fd) && position(c, fd) && real.fcntl(fd, F_SETSIG, 0) == 0)
		c->received = false;
	return !c->received;
}

void passing_closed(struct conn *c, int fd, uint32_t was)
{
	bool as_it_came = !c->inq && !c->stamps && !c->rx_shut && !c->tx_off;
	if (c->passes == 1 && was == CONN_COUNTING && as_it_came && !heirs_left(c, fd))
		real.fcntl(fd, F_SETSIG, FREE);
}
