// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Where addresses are translated, two ends are of one connection only if that may be by
// what they have carried (proof.c). Here they are of two, over the loopback, which carry
// the same, and then not.
//
// Exit status: 0 all is as it should be, 1 not (said on stderr).
#include <errno.h>
#include <linux/filter.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <linux/sockios.h>
#include <unistd.h>

#include "home.h"
#include "proof.h"
#include "tuple.h"

// A connection; the other end of it is only there so that it carries something.
struct one {
	int end, other;
	struct tuple tuple; // of end
	struct stat st;
};

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct one connection(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_storage here, there;
	socklen_t n = sizeof a, h = sizeof here, t = sizeof there;
	struct one c;
	memset(&c, 0, sizeof c);
	int l = socket(AF_INET, SOCK_STREAM, 0);
	c.end = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0 ||
	    connect(c.end, (struct sockaddr *)&a, n) < 0 || (c.other = accept(l, NULL, NULL)) < 0 ||
	    getsockname(c.end, (struct sockaddr *)&here, &h) < 0 || getpeername(c.end, (struct sockaddr *)&there, &t) < 0 ||
	    fstat(c.end, &c.st) < 0)
		die("connection");
	tuple_side(c.tuple.local, &c.tuple.local_port, &here);
	tuple_side(c.tuple.remote, &c.tuple.remote_port, &there);
	close(l);
	return c;
}

// carry sends so many bytes and waits until they are acknowledged.
static void carry(int from, size_t n)
{
	static const char bytes[1000];
	if (n && send(from, bytes, n, 0) != (ssize_t)n)
		die("send");
	for (int left = 1; left; poll(NULL, 0, 1))
		if (ioctl(from, SIOCOUTQ, &left) < 0)
			die("SIOCOUTQ");
}

// silence: from now on the peer of this end hears nothing of what it sends, and it has said something since, in vain.
static void silence(int end, int peer)
{
	struct sock_filter none = BPF_STMT(BPF_RET | BPF_K, 0);
	struct sock_fprog program = {1, &none};
	struct tcp_info t = {0};
	if (setsockopt(peer, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof program) < 0 || send(end, "", 1, 0) != 1)
		die("silence");
	for (socklen_t n = sizeof t; t.tcpi_retransmits == 0; poll(NULL, 0, 1))
		if (getsockopt(end, IPPROTO_TCP, TCP_INFO, &t, &n) < 0)
			die("TCP_INFO");
}

static enum reason judge(const struct one *ours, const struct one *theirs, bool translates)
{
	static struct conn c;
	struct proof p;
	c.tuple = ours->tuple;
	c.other = theirs->tuple;
	c.net = home_cookie(ours->end);
	c.translates = translates;
	if (!proof_make(theirs->end, false, &p))
		die("proof_make");
	enum reason why = proof_check(&c, theirs->st.st_ino, theirs->st.st_uid, &p);
	proof_drop(&p);
	return why;
}

int main(void)
{
	enum silent { NOBODY, US, THEM };
	static const struct {
		const char *what;
		size_t we_sent, they_received, they_sent, we_received;
		enum silent silent;
		enum reason want;
	} cases[] = {
		{"both have carried nothing", 0, 0, 0, 0, NOBODY, REASON_NONE},
		{"both have carried the same", 5, 5, 700, 700, NOBODY, REASON_NONE},
		{"what we have sent and was acknowledged did not come there", 9, 5, 0, 0, NOBODY, REASON_NO_PEER},
		{"we have not sent what came there", 5, 9, 0, 0, NOBODY, REASON_NO_PEER},
		{"what they have sent and was acknowledged did not come here", 0, 0, 9, 5, NOBODY, REASON_NO_PEER},
		{"they have not sent what came here", 0, 0, 5, 9, NOBODY, REASON_NO_PEER},
		{"our peer is silent", 0, 0, 0, 0, US, REASON_NO_PEER},
		{"theirs is", 0, 0, 0, 0, THEM, REASON_NO_PEER},
	};
	int bad = 0;
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct one ours = connection(), theirs = connection();
		carry(ours.end, cases[i].we_sent);
		carry(theirs.other, cases[i].they_received);
		carry(theirs.end, cases[i].they_sent);
		carry(ours.other, cases[i].we_received);
		if (cases[i].silent == US)
			silence(ours.end, ours.other);
		if (cases[i].silent == THEM)
			silence(theirs.end, theirs.other);
		enum reason is = judge(&ours, &theirs, true), plain = judge(&ours, &theirs, false);
		if (is != cases[i].want || plain != REASON_NONE) {
			fprintf(stderr, "%s: %s; where nothing is translated: %s\n", cases[i].what, reason_names[is], reason_names[plain]);
			bad++;
		}
		close(ours.end), close(ours.other), close(theirs.end), close(theirs.other);
	}
	return bad > 0;
}
