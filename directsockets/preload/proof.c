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
//	3. the peer hands an epoll descriptor that watches its socket. An epoll
//	   set takes no reference to what it watches, gives no access to it, and
//	   /proc/self/fdinfo names the inode and device of each member. Only who
//	   holds the socket can have put it there.
#include "real.h"

#include "proof.h"

#include <arpa/inet.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <stdlib.h>
#include <string.h>

#include "files.h"

static int diag = -1;

void proof_forget(void)
{
	files_close(diag);
	diag = -1;
}

int proof_make(int fd)
{
	int e = real.epoll_create1(EPOLL_CLOEXEC);
	struct epoll_event ev = {.events = 0};
	if (e >= 0 && real.epoll_ctl(e, EPOLL_CTL_ADD, fd, &ev) < 0) {
		real.close(e);
		e = -1;
	}
	return e;
}

// members reads fdinfo of an epoll set and looks for a member with this inode;
// it returns the device of the member's file system.
static bool members(int fd, uint64_t ino, bool any, uint64_t *dev)
{
	char path[48], text[4096];
	snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
	int f = open(path, O_RDONLY | O_CLOEXEC);
	if (f < 0)
		return false;
	ssize_t n = real.read(f, text, sizeof text - 1);
	real.close(f);
	if (n <= 0)
		return false;
	text[n] = 0;
	for (char *line = text; line; line = strchr(line, '\n')) {
		line += *line == '\n';
		if (strncmp(line, "tfd:", 4) != 0)
			continue;
		char *i = strstr(line, " ino:"), *s = strstr(line, " sdev:");
		if (!i || !s)
			return false;
		*dev = strtoull(s + 6, NULL, 16);
		if (any || strtoull(i + 5, NULL, 16) == ino)
			return true;
	}
	return false;
}

// socket_device is the device number of the kernel's socket file system.
static bool socket_device(uint64_t *dev)
{
	int e = proof_make(diag);
	bool ok = e >= 0 && members(e, 0, true, dev);
	if (e >= 0)
		real.close(e);
	return ok;
}

static bool mapped(const uint8_t a[16])
{
	static const uint8_t prefix[12] = {[10] = 0xff, [11] = 0xff};
	return memcmp(a, prefix, sizeof prefix) == 0;
}

static bool lookup(const struct tuple *t, uint64_t *ino, uint32_t *uid)
{
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q = {
		.h = {sizeof q, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST, 1, 0},
		.r = {.sdiag_protocol = IPPROTO_TCP, .idiag_states = ~0u},
	};
	union {
		struct nlmsghdr h;
		char space[1024];
	} a;
	q.r.id.idiag_sport = t->remote_port;
	q.r.id.idiag_dport = t->local_port;
	q.r.id.idiag_cookie[0] = q.r.id.idiag_cookie[1] = INET_DIAG_NOCOOKIE;
	if (mapped(t->local)) {
		q.r.sdiag_family = AF_INET;
		memcpy(q.r.id.idiag_src, t->remote + 12, 4);
		memcpy(q.r.id.idiag_dst, t->local + 12, 4);
	} else {
		q.r.sdiag_family = AF_INET6;
		memcpy(q.r.id.idiag_src, t->remote, 16);
		memcpy(q.r.id.idiag_dst, t->local, 16);
	}
	if (diag < 0)
		diag = files_keep(real.socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_SOCK_DIAG));
	if (diag < 0 || real.send(diag, &q, sizeof q, 0) != (ssize_t)sizeof q)
		return false;
	ssize_t n = real.recv(diag, &a, sizeof a, 0); // answered synchronously
	if (n < (ssize_t)(NLMSG_LENGTH(sizeof(struct inet_diag_msg))) || a.h.nlmsg_type != SOCK_DIAG_BY_FAMILY)
		return false;
	struct inet_diag_msg m;
	memcpy(&m, NLMSG_DATA(&a.h), sizeof m);
	if (m.id.idiag_sport != t->remote_port || m.id.idiag_dport != t->local_port)
		return false;
	*ino = m.idiag_inode;
	*uid = m.idiag_uid;
	return true;
}

bool proof_check(const struct tuple *t, uint64_t ino, uint32_t uid, int handed)
{
	uint64_t is = 0, dev = 0, sock = 1;
	uint32_t owner = ~0u;
	return handed >= 0 && ino != 0 && lookup(t, &is, &owner) && is == ino && owner == uid &&
	       members(handed, ino, false, &dev) && socket_device(&sock) && dev == sock;
}
