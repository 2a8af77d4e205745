// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// The TCP socket itself is never passed to the peer: who gets it could read,
// inject and keep the connection open. Instead:
//
//	1. the kernel tells by sock_diag which inode and which uid the socket
//	   at the other end has (unprivileged, exact lookup);
//	2. the peer process' uid, from SO_PEERCRED of the control socket, must
//	   be that uid;
//	3. the peer hands an O_PATH descriptor of its socket. That can be neither
//	   read, written nor opened anew, and does not keep the socket open; fstat
//	   tells its inode and that it is of the kernel's file system for sockets,
//	   at the same price whatever was handed. Only who holds the socket, or may
//	   look into the process that does, can have made it;
//	4. where the other end lies in another network namespace, our kernel does not
//	   know it here. The peer hands a sock_diag socket, in which 1 is asked. That
//	   must be of the namespace in which the address was registered (home.h).
//
// The peer has that socket too. It can take answers away, and then the connection
// stays on TCP; and it can have asked for others before. It cannot forge one: who
// answers is told by the kernel, the question has a number that cannot be guessed,
// and the answer must be about our connection.
//
// In a user namespace all users that it does not map look alike, and are taken for
// nobody's: then 2 says nothing, and there is no proof.
//
// All that shows whose the socket with the other ends is. Where packets pass more than the
// loopback that may still be the end of an older connection, which has not heard of its peer's
// end, while ours goes elsewhere: the addresses are translated by other rules than before. So the
// kernel is asked as well what both ends have sent and received. What the one has sent and has
// been told to have come must be what the other has received, but for what is under way, and
// neither may be waiting for a peer that is silent.
#include "real.h"

#include "proof.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "files.h"
#include "home.h"

static int diag = -1;
static uint64_t diag_net; // the cookie of its network namespace

void proof_forget(void)
{
	files_close(diag);
	diag = -1;
}

// diag_make makes a sock_diag socket of the network namespace that we are in.
static int diag_make(void) { return real.socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG); }

// show opens the file of a descriptor without the right to use it, or returns -1.
static int show(int fd)
{
	char path[32];
	snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
	return open(path, O_PATH | O_CLOEXEC);
}

bool proof_make(int fd, bool abroad, struct proof *p)
{
	*p = (struct proof){show(fd), abroad ? diag_make() : -1};
	if (p->socket >= 0 && (!abroad || p->diag >= 0))
		return true;
	proof_drop(p);
	return false;
}

void proof_drop(struct proof *p)
{
	if (p->socket >= 0)
		real.close(p->socket);
	if (p->diag >= 0)
		real.close(p->diag);
	*p = (struct proof){-1, -1};
}

// look is fstat that asks nobody: of another kind of file, such as one of FUSE, somebody could let
// us wait for the answer.
static bool look(int fd, struct statx *s)
{
	return real.syscall(SYS_statx, fd, "", AT_EMPTY_PATH | AT_STATX_DONT_SYNC, STATX_TYPE | STATX_INO, s) == 0;
}

// shows: this descriptor is of a socket with this inode, and its holder can do nothing else with it.
static bool shows(int fd, uint64_t ino)
{
	struct statx own, s;
	int flags = real.fcntl(fd, F_GETFL);
	return flags >= 0 && (flags & O_PATH) && look(diag, &own) && look(fd, &s) && S_ISSOCK(s.stx_mode) && s.stx_ino == ino &&
	       s.stx_dev_major == own.stx_dev_major && s.stx_dev_minor == own.stx_dev_minor;
}

static bool mapped(const uint8_t a[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(a, prefix, sizeof prefix) == 0;
}

// abroad: is this a sock_diag socket of the network namespace of that cookie? Only
// then it is the kernel that answers, and for that namespace.
static bool abroad(int fd, uint64_t net)
{
	uint64_t cookie = 0;
	int domain = 0, protocol = -1;
	socklen_t n = sizeof cookie, d = sizeof domain, p = sizeof protocol;
	return fd >= 0 && real.getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &d) == 0 && domain == AF_NETLINK &&
	       real.getsockopt(fd, SOL_SOCKET, SO_PROTOCOL, &protocol, &p) == 0 && protocol == NETLINK_SOCK_DIAG &&
	       real.getsockopt(fd, SOL_SOCKET, HOME_COOKIE, &cookie, &n) == 0 && cookie == net;
}

// What the kernel knows of one end of a connection.
struct end {
	uint64_t ino;
	uint32_t uid;
	bool counts; // the rest is known
	bool repeats; // what it has sent, since no acknowledgement comes
	uint64_t sent, acked, received; // bytes; a SYN and a FIN may count as one each
};

// count reads what an end has carried from the attributes of an answer.
static void count(const struct nlmsghdr *h, size_t n, struct end *e)
{
	enum { REPEATS = 2, ACKED = 120, RECEIVED = 128, SENT = 200, ALL = 208 }; // of struct tcp_info, as Linux 4.19 has it
	const char *at = (const char *)h + NLMSG_SPACE(sizeof(struct inet_diag_msg)), *end = (const char *)h + n;
	struct rtattr a;
	for (; end - at >= (ptrdiff_t)sizeof a; at += RTA_ALIGN(a.rta_len)) {
		memcpy(&a, at, sizeof a);
		if (a.rta_len < sizeof a || a.rta_len > end - at)
			return;
		const char *info = at + RTA_LENGTH(0);
		if (a.rta_type != INET_DIAG_INFO || RTA_PAYLOAD(&a) < ALL)
			continue;
		e->counts = true;
		e->repeats = info[REPEATS] != 0;
		memcpy(&e->acked, info + ACKED, sizeof e->acked);
		memcpy(&e->received, info + RECEIVED, sizeof e->received);
		memcpy(&e->sent, info + SENT, sizeof e->sent);
	}
}

// lookup asks the kernel for the socket of that tuple, in the namespace of asked.
static bool lookup(int asked, const struct tuple *t, struct end *e)
{
	static const struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = {
		.h = {sizeof q, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 0, 0},
		.r = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u, .idiag_ext = 1 << (INET_DIAG_INFO - 1)},
	};
	union {
		struct nlmsghdr h;
		char space[1024];
	} a;
	struct sockaddr_nl from = {0};
	socklen_t len = sizeof from;
	bool v4 = mapped(t->local);
	size_t at = v4 ? 12 : 0, size = 16 - at;
	if (getrandom(&q.h.nlmsg_seq, sizeof q.h.nlmsg_seq, GRND_NONBLOCK) != sizeof q.h.nlmsg_seq)
		return false;
	q.r.sdiag_family = v4 ? AF_INET : AF_INET6;
	q.r.id.idiag_sport = t->local_port;
	q.r.id.idiag_dport = t->remote_port;
	q.r.id.idiag_cookie[0] = q.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	memcpy(q.r.id.idiag_src, t->local + at, size);
	memcpy(q.r.id.idiag_dst, t->remote + at, size);
	if (real.sendto(asked, &q, sizeof q, MSG_DONTWAIT, (const struct sockaddr *)&kernel, sizeof kernel) != (ssize_t)sizeof q)
		return false;
	ssize_t n = real.recvfrom(asked, &a, sizeof a, MSG_DONTWAIT, (struct sockaddr *)&from, &len); // answered synchronously
	if (n < (ssize_t)(NLMSG_LENGTH(sizeof(struct inet_diag_msg))) || from.nl_pid != 0 || a.h.nlmsg_seq != q.h.nlmsg_seq ||
	    a.h.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	struct inet_diag_msg m;
	memcpy(&m, NLMSG_DATA(&a.h), sizeof m);
	at = m.idiag_family == AF_INET ? 12 : 0; // of an IPv6 socket the addresses are told as mapped ones
	size = 16 - at;
	if (m.id.idiag_sport != t->local_port || m.id.idiag_dport != t->remote_port ||
	    memcmp(m.id.idiag_src, t->local + at, size) != 0 || memcmp(m.id.idiag_dst, t->remote + at, size) != 0)
		return false;
	*e = (struct end){.ino = m.idiag_inode, .uid = m.idiag_uid};
	count(&a.h, (size_t)n, e);
	return true;
}

// all_mapped: this user namespace knows every user, as the first one does.
static bool all_mapped(void)
{
	char map[64];
	unsigned long from, to, n = 0;
	int f = open("/proc/self/uid_map", O_RDONLY | O_CLOEXEC);
	ssize_t got = f < 0 ? -1 : real.read(f, map, sizeof map - 1);
	if (f >= 0)
		real.close(f);
	map[got > 0 ? got : 0] = 0;
	return sscanf(map, "%lu %lu %lu", &from, &to, &n) == 3 && from == 0 && n == ~0u;
}

// someone tells a user from the one that unknown ones look like.
static bool someone(uint32_t uid)
{
	enum { OVERFLOW_UID = 65534 }; // unless changed in /proc/sys/kernel/overflowuid
	return uid != OVERFLOW_UID || all_mapped();
}

// diag_ready: we can ask in the network namespace of that cookie. Programs have sockets of others than they are in,
// where another connection may have the same ends.
static bool diag_ready(uint64_t here)
{
	if (diag >= 0 && diag_net != here)
		proof_forget();
	if (diag < 0 && (diag = files_keep(diag_make())) >= 0)
		diag_net = home_cookie(diag);
	return diag >= 0 && diag_net == here;
}

bool proof_far(const struct tuple *other, uint64_t here, uint64_t *ino, uint32_t *uid)
{
	struct end e;
	if (!diag_ready(here) || !lookup(diag, other, &e))
		return false;
	*ino = e.ino;
	*uid = e.uid;
	return true;
}

bool proof_other(const struct conn *c, uint64_t ino, uint32_t uid)
{
	struct end e;
	return diag_ready(c->net) && lookup(diag, &c->other, &e) && ino && e.ino == ino && e.uid == uid && someone(uid);
}

bool proof_elsewhere(const struct tuple *other, uint64_t here)
{
	struct end e;
	return diag_ready(here) && !lookup(diag, other, &e);
}

// fit: by what they have carried these may be the ends of one connection. Ours was asked about before and after the
// far one: what is on its way then is in one of the two.
static bool fit(const struct end *before, const struct end *far, const struct end *after)
{
	const uint64_t slack = 2; // SYN and FIN
	return before->counts && far->counts && after->counts && !before->repeats && !far->repeats &&
	       before->acked <= far->received + slack && far->received <= after->sent + slack &&
	       before->received <= far->sent + slack && far->acked <= after->received + slack;
}

enum reason proof_check(const struct conn *c, uint64_t ino, uint32_t uid, const struct proof *handed)
{
	struct end before = {0}, far, after = {0};
	bool compare = c->peer_net || c->translates;
	if (!diag_ready(c->net) || handed->socket < 0 || ino == 0 || (c->peer_net && !abroad(handed->diag, c->peer_net)))
		return REASON_PROOF;
	if (compare && !lookup(diag, &c->tuple, &before))
		return REASON_PROOF;
	if (!lookup(c->peer_net ? handed->diag : diag, &c->other, &far))
		return REASON_PROOF;
	if (far.ino == 0) // closed since; what is left of it the kernel still knows
		return REASON_PEER_GONE;
	bool proven = far.ino == ino && far.uid == uid && someone(uid) && shows(handed->socket, ino);
	if (!proven)
		return REASON_PROOF;
	if (compare && !(lookup(diag, &c->tuple, &after) && fit(&before, &far, &after)))
		return REASON_NO_PEER;
	return REASON_NONE;
}
