// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Proof across network namespaces (proof.c, rule 4), tried from both sides: the
// parent checks what a child in a network namespace of its own hands it, about a
// connection over that namespace's loopback. What is true must be believed, and
// each lie must not. One of the parent's passes for the other half of that connection,
// until it has carried something that the child's has not.
//
// Exit status: 0 all is as it should be, 1 not (said on stderr), 77 not permitted.
#include <errno.h>
#include <fcntl.h>
#include <linux/inet_diag.h>
#include <linux/netlink.h>
#include <linux/sock_diag.h>
#include <net/if.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "home.h"
#include "proof.h"
#include "tuple.h"

enum lie { NONE, HOST_DIAG, ROUTE, FORGED, NO_DIAG, OTHER_SOCKET, OTHER_INODE, OTHER_USER, OTHER_NAMESPACE, OTHER_TUPLE, REDIRECTED, UNLIKE, LIES };
static const char *const names[LIES] = {"the truth", "a diag socket of another namespace", "a socket of another netlink protocol", "an answer of our own",
	"no diag socket", "a descriptor of another socket", "another inode", "another user", "another namespace's cookie", "another connection",
	"a diag socket that takes answers from elsewhere only", "an end that has sent nothing of what came"};

struct claim {
	struct tuple tuple;
	uint64_t net, ino;
	uint32_t uid;
};

static struct claim forged;

static void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	exit(errno == EPERM ? 77 : 1);
}

static int diag_socket(int protocol) { return socket(AF_NETLINK, SOCK_DGRAM | SOCK_CLOEXEC, protocol); }

// connection makes one over the loopback; ours is its accepted end.
static int connection(struct claim *c, int *other)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sockaddr_storage s;
	struct stat st;
	socklen_t n = sizeof a, k = sizeof s;
	int l = socket(AF_INET, SOCK_STREAM, 0), out = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0 ||
	    connect(out, (struct sockaddr *)&a, n) < 0)
		die("connection");
	int in = accept(l, NULL, NULL);
	memset(c, 0, sizeof *c);
	getsockname(in, (struct sockaddr *)&s, &k); // the parent, which checks, is the one that connected
	tuple_side(c->tuple.local, &c->tuple.local_port, &s);
	k = sizeof s;
	getpeername(in, (struct sockaddr *)&s, &k);
	tuple_side(c->tuple.remote, &c->tuple.remote_port, &s);
	fstat(in, &st);
	c->ino = st.st_ino;
	c->net = home_cookie(in);
	c->uid = getuid();
	close(l);
	*other = out;
	return in;
}

static void hand(int to, const struct claim *c, int shown, int diag)
{
	struct iovec iov = {(void *)(uintptr_t)c, sizeof *c};
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} m = {0};
	int fds[2] = {shown, diag};
	size_t size = diag < 0 ? sizeof(int) : sizeof fds;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &m, .msg_controllen = CMSG_SPACE(size)};
	m.h.cmsg_level = SOL_SOCKET;
	m.h.cmsg_type = SCM_RIGHTS;
	m.h.cmsg_len = CMSG_LEN(size);
	memcpy(CMSG_DATA(&m.h), fds, size);
	if (sendmsg(to, &h, 0) < 0)
		die("hand");
}

static bool take(int from, struct claim *c, struct proof *p)
{
	struct iovec iov = {c, sizeof *c};
	union {
		struct cmsghdr h;
		char space[CMSG_SPACE(2 * sizeof(int))];
	} m;
	struct msghdr h = {.msg_iov = &iov, .msg_iovlen = 1, .msg_control = &m, .msg_controllen = sizeof m};
	*p = (struct proof){-1, -1};
	if (recvmsg(from, &h, 0) != (ssize_t)sizeof *c)
		return false;
	memcpy(&p->socket, CMSG_DATA(&m.h), sizeof(int));
	if (m.h.cmsg_len == CMSG_LEN(2 * sizeof(int)))
		memcpy(&p->diag, CMSG_DATA(&m.h) + sizeof(int), sizeof(int));
	return true;
}

static void *forge(void *arg)
{
	int fd = *(int *)arg;
	struct {
		struct nlmsghdr h;
		struct inet_diag_req_v2 r;
	} q;
	struct {
		struct nlmsghdr h;
		struct inet_diag_msg m;
	} a = {.h = {.nlmsg_len = sizeof a, .nlmsg_type = SOCK_DIAG_BY_FAMILY}};
	if (recv(fd, &q, sizeof q, 0) == (ssize_t)sizeof q) {
		a.h.nlmsg_seq = q.h.nlmsg_seq;
		a.m.id = q.r.id;
		a.m.idiag_inode = (uint32_t)forged.ino;
		a.m.idiag_uid = forged.uid;
		send(fd, &a, sizeof a, MSG_NOSIGNAL);
	}
	return NULL;
}

// forger gives a socket of this namespace at whose other end somebody answers what
// he likes. A sequenced one takes no notice of the address that a question is sent to.
static int forger(const struct claim *c)
{
	static int pair[2];
	pthread_t t;
	forged = *c;
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0 || pthread_create(&t, NULL, forge, &pair[1]) != 0)
		die("forger");
	pthread_detach(t);
	return pair[0];
}

static void abroad(int to, int host_diag)
{
	struct ifreq lo = {.ifr_name = "lo", .ifr_flags = IFF_UP};
	struct claim c, other;
	struct proof p;
	int s = socket(AF_INET, SOCK_DGRAM, 0);
	if (ioctl(s, SIOCSIFFLAGS, &lo) < 0)
		die("lo");
	int out, in = connection(&c, &out), second = connection(&other, &out);
	for (enum lie lie = NONE; lie < LIES; lie++) {
		struct claim said = c;
		if (!proof_make(in, true, &p))
			die("proof_make");
		int diag = p.diag, shown = p.socket, made = -1;
		switch (lie) {
		case HOST_DIAG:
			diag = host_diag;
			break;
		case ROUTE:
			diag = made = diag_socket(NETLINK_ROUTE);
			break;
		case FORGED: // of a connection that does not exist
			said.tuple.remote_port ^= 1;
			diag = made = forger(&said);
			break;
		case NO_DIAG:
			diag = -1;
			break;
		case OTHER_SOCKET: {
			char path[32];
			snprintf(path, sizeof path, "/proc/self/fd/%d", second);
			shown = made = open(path, O_PATH);
			break;
		}
		case OTHER_INODE:
			said.ino = other.ino;
			break;
		case OTHER_USER:
			said.uid++;
			break;
		case OTHER_NAMESPACE:
			said.net++;
			break;
		case OTHER_TUPLE:
			said.tuple = other.tuple;
			break;
		case REDIRECTED: {
			struct sockaddr_nl a = {.nl_family = AF_NETLINK};
			socklen_t n = sizeof a;
			made = diag_socket(NETLINK_SOCK_DIAG);
			if (bind(made, (struct sockaddr *)&a, n) < 0 || getsockname(made, (struct sockaddr *)&a, &n) < 0 ||
			    connect(diag, (struct sockaddr *)&a, n) < 0)
				die("redirect");
			break;
		}
		default:
			break;
		}
		hand(to, &said, shown, diag);
		proof_drop(&p);
		char done;
		if (read(to, &done, 1) != 1) // the sockets live until the parent has looked
			exit(1);
		if (made >= 0)
			close(made);
	}
	exit(0);
}

int main(void)
{
	static struct conn c;
	struct claim ours;
	int out, pair[2], bad = 0, status = 0;
	int host_diag = diag_socket(NETLINK_SOCK_DIAG);
	uint64_t here = home_cookie(host_diag);
	if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) < 0)
		die("socketpair");
	pid_t child = fork();
	if (child == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(pair[0]);
		if (unshare(CLONE_NEWNET) < 0)
			die("unshare");
		abroad(pair[1], host_diag);
	}
	close(pair[1]);
	connection(&ours, &out);
	c.tuple = ours.tuple;
	c.net = here;
	for (enum lie lie = NONE; lie < LIES; lie++) {
		struct claim said;
		struct proof p;
		if (!take(pair[0], &said, &p))
			break;
		if (lie == UNLIKE && send(out, "more", 4, 0) != 4)
			die("send");
		c.other = said.tuple;
		c.peer_net = said.net;
		enum reason want = lie == NONE ? REASON_NONE : lie == UNLIKE ? REASON_NO_PEER : REASON_PROOF;
		enum reason is = proof_check(&c, said.ino, said.uid, &p);
		if (is != want) {
			fprintf(stderr, "%s: %s, not %s\n", names[lie], reason_names[is], reason_names[want]);
			bad++;
		}
		// Here nobody knows that connection.
		c.peer_net = 0;
		if (proof_check(&c, said.ino, said.uid, &p) == REASON_NONE) {
			fprintf(stderr, "%s: believed of this namespace\n", names[lie]);
			bad++;
		}
		proof_drop(&p);
		if (write(pair[0], "", 1) != 1)
			die("write");
	}
	if (waitpid(child, &status, 0) != child || !WIFEXITED(status))
		die("child");
	return WEXITSTATUS(status) ? WEXITSTATUS(status) : bad > 0;
}
