// SPDX-License-Identifier: Apache-2.0
#include "real.h"

#include "tuple.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "board.h"
#include "config.h"
#include "conn.h"
#include "home.h"
#include "policy.h"

void tuple_side(uint8_t to[16], uint16_t *port, const struct sockaddr_storage *s)
{
	if (s->ss_family == AF_INET) {
		const struct sockaddr_in *a = (const struct sockaddr_in *)s;
		memset(to, 0, 10);
		to[10] = to[11] = 0xff;
		memcpy(to + 12, &a->sin_addr, 4);
		*port = a->sin_port;
	} else {
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)s;
		memcpy(to, &a->sin6_addr, 16);
		*port = a->sin6_port;
	}
}

uint16_t tuple_port(const struct sockaddr *a, socklen_t n)
{
	uint16_t port = 0; // where both families have it
	if (a && n >= (socklen_t)sizeof(struct sockaddr_in) && (a->sa_family == AF_INET || a->sa_family == AF_INET6))
		memcpy(&port, (const char *)a + offsetof(struct sockaddr_in, sin_port), sizeof port);
	return port;
}

bool tuple_inside(const uint8_t a[16], const struct subnet *s)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	unsigned whole = s->bits / 8, rest = s->bits % 8;
	if (s->bits < 96 && !memcmp(a, v4, sizeof v4))
		return false; // ::/0 is IPv6 only
	return !memcmp(a, s->address, whole) && (!rest || !((a[whole] ^ s->address[whole]) >> (8 - rest)));
}

static bool named(const uint8_t a[16])
{
	for (uint32_t i = 0; i < config.subnet_count; i++)
		if (tuple_inside(a, &config.subnets[i]))
			return true;
	return false;
}

// inland: is the other end in this network namespace, at an address that upgrades?
//
//	loopback      127.0.0.0/8 or ::1 at both ends
//	the same      an address of this host at both ends, e.g. 10.0.0.5 to 10.0.0.5
//	subnets       both ends in EXN_DS_SUBNETS: for different addresses of this host
//
// An end that turns out to be elsewhere is never found: offers carry the cookie of this
// namespace, and the proof asks the kernel here.
static bool inland(const struct tuple *t)
{
	static const uint8_t loopback4[13] = {[10] = 0xff, [11] = 0xff, [12] = 127};
	static const uint8_t loopback6[16] = {[15] = 1};
	if (!memcmp(t->local, loopback4, 13) && !memcmp(t->remote, loopback4, 13))
		return true;
	if (!memcmp(t->local, loopback6, 16) && !memcmp(t->remote, loopback6, 16))
		return true;
	return !memcmp(t->local, t->remote, 16) || (named(t->local) && named(t->remote));
}

// A tuple as text: these parts in hex, nothing between them.
enum { PARTS = 4 };
static const int part_size[PARTS] = {16, 2, 16, 2};

void tuple_turn(struct tuple *to, const struct tuple *t)
{
	*to = *t;
	memcpy(to->local, t->remote, 16);
	memcpy(to->remote, t->local, 16);
	to->local_port = t->remote_port;
	to->remote_port = t->local_port;
}

bool tuple_equal(const struct tuple *a, const struct tuple *b)
{
	return !memcmp(a->local, b->local, 16) && !memcmp(a->remote, b->remote, 16) && a->local_port == b->local_port &&
	       a->remote_port == b->remote_port;
}

bool tuple_first(const struct conn *c)
{
	int d = memcmp(c->tuple.local, c->other.local, 16);
	d = d ? d : memcmp(&c->tuple.local_port, &c->other.local_port, 2);
	return d ? d < 0 : c->net < c->peer_net;
}

void tuple_name(char to[TUPLE_NAME], const struct tuple *t, uint64_t cookie)
{
	static const char hex[] = "0123456789abcdef";
	int k = snprintf(to, TUPLE_NAME, "%llx-", (unsigned long long)cookie);
	const uint8_t *part[PARTS] = {t->local, (const uint8_t *)&t->local_port, t->remote, (const uint8_t *)&t->remote_port};
	for (int i = 0; i < PARTS; i++)
		for (int j = 0; j < part_size[i]; j++) {
			to[k++] = hex[part[i][j] >> 4];
			to[k++] = hex[part[i][j] & 15];
		}
	to[k] = 0;
}

static void end_text(char to[48], const uint8_t a[16], uint16_t port)
{
	static const uint8_t v4[12] = {[10] = 0xff, [11] = 0xff};
	char text[INET6_ADDRSTRLEN] = "";
	bool is4 = !memcmp(a, v4, sizeof v4);
	inet_ntop(is4 ? AF_INET : AF_INET6, is4 ? a + 12 : a, text, sizeof text);
	snprintf(to, 48, is4 ? "%.40s:%u" : "[%.39s]:%u", text, (unsigned)ntohs(port));
}

void tuple_text(char to[TUPLE_TEXT], const struct conn *c)
{
	char local[48], remote[48];
	if (!c->tuple.local_port) {
		snprintf(to, TUPLE_TEXT, "a connection"); // of a protocol of its own
		return;
	}
	end_text(local, c->tuple.local, c->tuple.local_port);
	end_text(remote, c->tuple.remote, c->tuple.remote_port);
	snprintf(to, TUPLE_TEXT, "%s to %s", local, remote);
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool tuple_named(const char *name, struct tuple *t, uint64_t *cookie)
{
	char *at;
	uint8_t *part[PARTS] = {t->local, (uint8_t *)&t->local_port, t->remote, (uint8_t *)&t->remote_port};
	memset(t, 0, sizeof *t);
	*cookie = strtoull(name, &at, 16);
	if (*at++ != '-' || !*cookie)
		return false;
	for (int i = 0; i < PARTS; i++)
		for (int j = 0; j < part_size[i]; j++, at += 2) {
			int high = digit(at[0]), low = high < 0 ? -1 : digit(at[1]);
			if (low < 0)
				return false;
			part[i][j] = (uint8_t)(high << 4 | low);
		}
	return !*at && t->local_port && t->remote_port;
}

// abroad: does the other end lie in another network namespace, from which we know
// that it is the right one?
static bool abroad(struct conn *c)
{
	uint64_t here, there;
	if (!home_find(c->tuple.local, &here) || here != c->net || !home_find(c->tuple.remote, &there))
		return false;
	c->peer_net = there == here ? 0 : there;
	return true;
}

bool tuple_translated(struct conn *c)
{
	struct tuple other;
	uint64_t net;
	if (!c->translates || !home_translated(&c->tuple, c->net, &other, &net))
		return false;
	c->other = other;
	c->peer_net = net == c->net ? 0 : net;
	return true;
}

bool tuple_know(struct conn *c, int fd)
{
	struct sockaddr_storage s = {0}, p = {0};
	socklen_t n = sizeof s, k = sizeof p;
	struct stat st;
	if (c->known)
		return true;
	if (getsockname(fd, (struct sockaddr *)&s, &n) < 0 || getpeername(fd, (struct sockaddr *)&p, &k) < 0 ||
	    real_fstat(fd, &st) < 0)
		return false;
	if ((s.ss_family == AF_INET || s.ss_family == AF_INET6) && s.ss_family == p.ss_family) {
		tuple_side(c->tuple.local, &c->tuple.local_port, &s);
		tuple_side(c->tuple.remote, &c->tuple.remote_port, &p);
		c->tuple.v6 = s.ss_family == AF_INET6;
	}
	c->ino = st.st_ino;
	c->known = true;
	return true;
}

enum reason tuple_identify(struct conn *c, int fd)
{
	int protocol = 0;
	socklen_t m = sizeof protocol;
	if (!tuple_know(c, fd))
		return REASON_NO_PEER;
	if (!c->tuple.local_port)
		return REASON_NOT_LOCAL;
	if (real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &m) < 0 || protocol != IPPROTO_TCP)
		return REASON_OPTION; // MPTCP
	if (!c->named) { // nobody takes them before there is a lane
		lock_init(&c->rx_lock);
		lock_init(&c->tx_lock);
	}
	int flags = real.fcntl(fd, F_GETFL);
	c->net = home_cookie(fd);
	c->nonblock = flags >= 0 && (flags & O_NONBLOCK);
	c->named = true;
	conn_options(c, fd, -1);
	bool permitted = policy_upgrades(c);
	tuple_turn(&c->other, &c->tuple);
	c->peer_net = 0;
	c->translates = board_translated() && home_translates();
	if (tuple_translated(c) || inland(&c->tuple) || abroad(c))
		return permitted ? REASON_NONE : REASON_POLICY;
	c->other = (struct tuple){0};
	return !permitted ? REASON_POLICY : c->translates ? REASON_NONE : REASON_NOT_LOCAL;
}
