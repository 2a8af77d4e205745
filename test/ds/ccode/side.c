// SPDX-License-Identifier: Apache-2.0
//
// side.c is one end of a stream run: it connects or accepts, lets threads and
// perhaps a forked child make calls for every direction of every connection,
// and closes. Of parent and child one stays to the end; the other may leave at
// any call.
#include "stream.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined __SANITIZE_THREAD__ || defined __SANITIZE_ADDRESS__
enum { late_forks = 0 }; // their run times may hold a lock for ever in a child of a process with threads
#else
enum { late_forks = 1 };
#endif

static int listener = -1;

// address is the server's: STREAM_IPV4 or STREAM_IPV6, else that of the loopback.
static socklen_t address(int port, struct sockaddr_storage *ss)
{
	const char *v4 = getenv("STREAM_IPV4"), *v6 = getenv("STREAM_IPV6");
	char mapped[64];
	snprintf(mapped, sizeof mapped, "::ffff:%s", v4 ? v4 : "127.0.0.1");
	memset(ss, 0, sizeof *ss);
	if (run->family == 4) {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;
		*in = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
		inet_pton(AF_INET, mapped + strlen("::ffff:"), &in->sin_addr);
		return sizeof *in;
	}
	struct sockaddr_in6 *in = (struct sockaddr_in6 *)ss;
	*in = (struct sockaddr_in6){.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
	inet_pton(AF_INET6, run->family == 0 ? mapped : v6 ? v6 : "::1", &in->sin6_addr);
	return sizeof *in;
}

static void start_listening(void)
{
	struct sockaddr_storage ss;
	socklen_t n = address(0, &ss);
	listener = socket(ss.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&ss, n) < 0 || listen(listener, 64) < 0 ||
		getsockname(listener, (struct sockaddr *)&ss, &n) < 0)
		fail("server: cannot listen: %s", strerrorname_np(errno));
	run->port = ntohs(((struct sockaddr_in *)&ss)->sin_port);
}

// meet makes the connections of a round. In a death run there may be fewer.
static int meet(enum role role, int round, int *fds)
{
	for (int i = 0; i < run->conns; i++) {
		if (role == server) {
			struct pollfd p = {.fd = listener, .events = POLLIN};
			int r;
			bool over;
			do {
				over = run->over > round; // looked at before the backlog is
				r = poll(&p, 1, over ? 0 : 20);
			} while (r <= 0 && !over);
			if (r <= 0)
				return i;
			fds[i] = accept(listener, NULL, NULL);
		} else {
			struct sockaddr_storage ss;
			socklen_t n = address(run->port, &ss);
			fds[i] = socket(ss.ss_family, SOCK_STREAM, 0);
			if (connect(fds[i], (struct sockaddr *)&ss, n) < 0) {
				if (run->death)
					return i;
				fail("client: connect: %s", strerrorname_np(errno));
			}
		}
		if (fds[i] < 0)
			fail("no connection: %s", strerrorname_np(errno));
	}
	return run->conns;
}

// warm plays ping-pong until a library has had occasion to upgrade, as the bulk
// that follows may be over before it has. In a death run it may fail: then there
// is nothing more to do on this connection.
static bool warm(enum role role, int fd)
{
	enum { rounds = 60, bytes = 400 };
	char b[bytes] = {0};
	for (int i = 0; i < 2 * rounds; i++)
		for (size_t at = 0; at < sizeof b;) {
			ssize_t r = i % 2 == (int)role ? send(fd, b + at, sizeof b - at, MSG_NOSIGNAL) : recv(fd, b + at, sizeof b - at, 0);
			if (r > 0)
				at += (size_t)r;
			else if (run->death)
				return false;
			else if (r == 0 || errno != EINTR)
				fail("%zd in round %d of the warm-up: %s", r, i / 2, strerrorname_np(errno));
		}
	return true;
}

// note_lanes adds to the counts of the run what the library publishes, if it is
// there: a run over TCP alone proves nothing (ext-ds.md, "Status").
static void note_lanes(void)
{
	struct { uint64_t magic; uint32_t version, pid; uint64_t at; uint32_t size, count, field[14]; } head;
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *e; d && (e = readdir(d));) {
		char target[64] = "";
		if (readlinkat(dirfd(d), e->d_name, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:exn-ds-family", 20) != 0)
			continue;
		int fd = atoi(e->d_name);
		if (pread(fd, &head, sizeof head, 0) != sizeof head || head.magic != 0x3154415453445845u)
			fail("the library's status has another format");
		char *record = malloc(head.size);
		for (uint32_t i = 0; i < head.count && i < 256; i++) {
			uint64_t n;
			if (pread(fd, record, head.size, (off_t)(head.at + (uint64_t)i * head.size)) != (ssize_t)head.size)
				break;
			for (int k = 4; k < 8; k++) {
				memcpy(&n, record + head.field[k], sizeof n);
				*(k < 6 ? &run->tcp : &run->lane) += n;
			}
			for (int k = 12; k < 14; k++) {
				memcpy(&n, record + head.field[k], sizeof n);
				run->zcopy += n;
			}
		}
		free(record);
		break;
	}
	if (d)
		closedir(d);
}

static void *run_caller(void *arg)
{
	struct caller *c = arg;
	if (c->who[0] == 'w')
		write_flow(c);
	else
		read_flow(c);
	caller_free(c);
	return NULL;
}

struct side {
	enum role role;
	int round, conns;
	int fds[max_conns];
	struct rng rng;
	bool signals;
	bool toggles[max_conns], nonblock[max_conns], by_close[max_conns];
};

static void noise(int signo) { (void)signo; }

// pass sends a descriptor to this process itself, and closes what arrives.
static void pass(int fd)
{
	char byte = 'f';
	union { char space[CMSG_SPACE(sizeof fd)]; struct cmsghdr align; } u = {0};
	struct iovec v = {&byte, 1};
	struct msghdr m = {.msg_iov = &v, .msg_iovlen = 1, .msg_control = u.space, .msg_controllen = sizeof u.space};
	int p[2];
	*CMSG_FIRSTHDR(&m) = (struct cmsghdr){.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
	memcpy(CMSG_DATA(CMSG_FIRSTHDR(&m)), &fd, sizeof fd);
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, p) < 0 || sendmsg(p[0], &m, 0) != 1 || recvmsg(p[1], &m, 0) != 1)
		fail("passing a descriptor: %s", strerrorname_np(errno));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof fd);
	close(fd);
	close(p[0]);
	close(p[1]);
}

// run_program runs one that ends, or leaves another behind for a moment.
static void run_program(bool ends)
{
	char *argv[] = {"sh", "-c", ends ? ":" : "sleep 0.01 &", NULL};
	pid_t pid;
	int status, e = posix_spawnp(&pid, argv[0], NULL, NULL, argv, environ);
	if (e != 0)
		fail("posix_spawn: %s", strerrorname_np(e));
	while (waitpid(pid, &status, 0) < 0)
		if (errno != EINTR)
			fail("waitpid: %s", strerrorname_np(errno));
}

// hand_over does in the middle of a stream what a library answers by going back to
// TCP: stdio, another process or another program might use the descriptor. All
// writers wait meanwhile, and none has come to its end, nor has either end done it
// before: what is unread behind an end or a writer that has left cannot come by TCP
// ("Where a connection differs from TCP" in docs/options.md). Programs may be run again and again.
static void hand_over(struct side *s, struct rng *rng)
{
	enum { stdio, passing, program, ways = program + 3 };
	uint32_t way = rnd(rng, ways);
	int from = (int)rnd(rng, (uint32_t)s->conns), to = from + 1;
	bool all_go = true, runs = way >= program;
	if (runs) {
		from = 0;
		to = s->conns;
	}
	for (int i = from; i < to; i++)
		for (int k = 0; k < 2; k++)
			run->conn[s->round][i].to[k].hold++;
	for (int i = from; i < to; i++)
		for (int k = 0; k < 2; k++) { // in this order at both ends
			struct direction *d = &run->conn[s->round][i].to[k];
			half_take(&d->w);
			all_go &= d->w.done == going && d->w.off < d->total && run->conn[s->round][i].handed_over <= runs;
		}
	for (int i = from; i < to && all_go; i++)
		run->conn[s->round][i].handed_over = runs ? 1 : 2;
	if (all_go && way == stdio) {
		FILE *f = fdopen(dup(s->fds[from]), "r");
		if (!f)
			fail("fdopen: %s", strerrorname_np(errno));
		fclose(f);
	} else if (all_go && way == passing) {
		pass(s->fds[from]);
	} else if (all_go) {
		run_program(way == program);
	}
	if (all_go)
		run->handed_over++;
	for (int i = from; i < to; i++)
		for (int k = 0; k < 2; k++) {
			half_give(&run->conn[s->round][i].to[k].w);
			run->conn[s->round][i].to[k].hold--;
		}
}

// work makes all calls of one process and closes the connections.
static void work(struct side *s, bool stays, uint64_t salt, bool late_fork, pid_t *child);

static pid_t fork_child(struct side *s, bool stays)
{
	pid_t pid = fork();
	if (pid < 0)
		fail("fork: %s", strerrorname_np(errno));
	if (pid == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		work(s, stays, 1, false, NULL);
		_exit(0);
	}
	return pid;
}

static void work(struct side *s, bool stays, uint64_t salt, bool late_fork, pid_t *child)
{
	enum { most = max_conns * 4 };
	struct caller callers[most];
	pthread_t threads[most];
	bool joined[most] = {false};
	int n = 0;
	struct rng rng = rng_of(run->seed, 100 + (uint64_t)s->round, s->role, salt);

	for (int i = 0; i < s->conns; i++) {
		struct conn *conn = &run->conn[s->round][i];
		if (s->fds[i] < 0)
			continue;
		for (int k = 0; k < 4; k++) {
			bool writes = k % 2;
			if (k >= 2 && one_in(&rng, 2))
				continue; // one or two threads each
			struct caller *c = &callers[n];
			*c = (struct caller){
				.rng = rng_of(run->seed, (uint64_t)s->round * 64 + (uint64_t)i * 4 + (uint64_t)k, s->role, 10 + salt),
				.d = &conn->to[writes ? !s->role : s->role],
				.fd = s->fds[i], .set = -1, .file = -1,
				.edge = one_in(&rng, 2),
				.interrupted = s->toggles[i] || s->signals || s->nonblock[i] || run->stops,
				.eof_by_close = writes && s->by_close[i],
				.leave = stays ? -1 : (int)rnd(&rng, 60),
				.who = writes ? s->role == server ? "writer of the server" : "writer of the client"
					      : s->role == server ? "reader of the server" : "reader of the client",
			};
			if (pthread_create(&threads[n], NULL, run_caller, c) != 0)
				fail("no thread");
			n++;
		}
	}
	if (late_fork) {
		usleep(rnd(&rng, 3000));
		*child = fork_child(s, !stays);
	}
	for (int tries = run->hands_over ? 6 : 0; tries > 0; tries--) {
		usleep(rnd(&rng, 1000));
		hand_over(s, &rng);
	}
	for (int left = n; left > 0;) {
		for (int i = 0; i < n; i++)
			if (!joined[i] && pthread_tryjoin_np(threads[i], NULL) == 0) {
				joined[i] = true;
				left--;
			}
		if (left == 0)
			break;
		usleep(300 + rnd(&rng, 700));
		int i = (int)rnd(&rng, (uint32_t)n); // n is not 0: something is left
		if (s->signals && !joined[i])
			pthread_kill(threads[i], SIGUSR1);
		for (int k = 0; k < s->conns; k++)
			if (s->toggles[k] && s->fds[k] >= 0 && one_in(&rng, 4))
				fcntl(s->fds[k], F_SETFL, O_RDWR | (one_in(&rng, 2) ? O_NONBLOCK : 0));
	}
	if (salt == 0)
		note_lanes();
	for (int i = 0; i < s->conns; i++)
		if (s->fds[i] >= 0 && close(s->fds[i]) < 0 && !run->death)
			fail("close: %s", strerrorname_np(errno));
}

static int count_lines(const char *path)
{
	FILE *f = fopen(path, "r");
	int n = 0;
	for (int ch; f && (ch = getc(f)) != EOF;)
		n += ch == '\n';
	if (f)
		fclose(f);
	return n;
}

static int count_fds(void)
{
	DIR *d = opendir("/proc/self/fd");
	int n = 0;
	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

int play_side(enum role role, int round)
{
	if (role == server && listener < 0)
		start_listening();
	struct side s = {.role = role, .round = round, .rng = rng_of(run->seed, (uint64_t)round, role, 2)};
	struct rng both = rng_of(run->seed, (uint64_t)round, 0, 3); // drawn alike by both ends
	// Closing comes after all directions are through, so if both sides waited for
	// the other's close, on different connections, neither would come to it.
	uint32_t closer = rnd(&both, 3); // 2: nobody
	bool cold = one_in(&both, 4);
	s.conns = meet(role, round, s.fds);
	s.signals = one_in(&s.rng, 4);
	struct sigaction sa = {.sa_handler = noise, .sa_flags = one_in(&s.rng, 2) ? SA_RESTART : 0};
	sigaction(SIGUSR1, &sa, NULL);
	if (run->death)
		signal(SIGPIPE, SIG_IGN);
	for (int i = 0; i < s.conns; i++) {
		int one = 1;
		if (one_in(&s.rng, 2))
			setsockopt(s.fds[i], IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		if (!cold && !warm(role, s.fds[i])) {
			close(s.fds[i]);
			s.fds[i] = -1;
			continue;
		}
		s.nonblock[i] = one_in(&s.rng, 2);
		if (s.nonblock[i])
			fcntl(s.fds[i], F_SETFL, O_RDWR | O_NONBLOCK);
		s.toggles[i] = one_in(&s.rng, 6);
		if (one_in(&s.rng, 6)) {
			struct timeval t = {.tv_usec = 5000};
			setsockopt(s.fds[i], SOL_SOCKET, SO_RCVTIMEO, &t, sizeof t);
			s.toggles[i] = true;
		}
		s.by_close[i] = closer == (uint32_t)role && one_in(&both, 2);
	}
	bool alone = run->alone; // both ends in this process: a child would hold both
	uint32_t fork_when = alone ? 0 : rnd(&s.rng, 4);
	bool parent_stays = one_in(&s.rng, 2), early = fork_when == 2, late = fork_when == 3 && late_forks;
	pid_t child = 0;
	if (early)
		child = fork_child(&s, !parent_stays);
	work(&s, parent_stays || !(early || late), 0, late, &child);
	if (child > 0) {
		int status;
		while (waitpid(child, &status, 0) < 0)
			if (errno != EINTR)
				fail("waitpid: %s", strerrorname_np(errno));
		if (status != 0)
			fail("the forked child ended with status %#x", status);
	}
	if (role == server && (round == 4 || round == run->rounds - 1)) {
		run->fds[round != 4] = count_fds();
		run->maps[round != 4] = count_lines("/proc/self/maps");
	}
	return 0;
}
