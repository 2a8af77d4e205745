// SPDX-License-Identifier: Apache-2.0
//
// buffers writes out of registered buffers (exnet.h) to a process of its own, which knows
// of each byte of the stream what it must be.
//
//	buffers SCENE
//
// A scene has one connection or several. Its writer fills a buffer with the bytes that are due,
// writes, and spoils what it has written as soon as the call returns: what anybody
// read later would be wrong. Scenes are at the end; "plain" is for a writer whose
// buffers are ordinary memory, for whatever reason.
//
// Exit status: 0 all is well, 1 something is wrong (said on stderr).
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "due.h"
#include "exnet.h"

enum { MIB = 1 << 20, PINGS = 60, LEAST = 512 << 10, WHOLE = 256 }; // WHOLE: MiB of all windows

// An end of a connection.
struct end {
	int fd;
	uint64_t at; // bytes so far
	pid_t peer;
};

// How the other process reads.
enum manner {
	ANYHOW, // 1 byte to 1 MiB, with and without MSG_PEEK
	SLOWLY, // with pauses
	LARGE,  // 1 MiB
	MOVING, // LARGE, but becomes another program in the middle
	DYING,  // LARGE, but is killed
};

static void receive(struct end *e, enum manner how)
{
	enum { PART = MIB };
	static uint8_t b[PART];
	uint64_t most = how == MOVING || how == DYING ? 3 * MIB + rnd(20 * MIB) : ~0ull;
	for (;;) {
		size_t n = how < LARGE && rnd(3) ? 1 + rnd(rnd(2) ? 4096 : PART) : PART;
		bool peeks = how == ANYHOW && rnd(4) == 0;
		ssize_t r = recv(e->fd, b, n, peeks ? MSG_PEEK : 0);
		if (r < 0)
			fail("read at %lu", e->at);
		if (r == 0)
			return;
		verify(b, e->at, (size_t)r);
		e->at += peeks ? 0 : (uint64_t)r;
		if (how == SLOWLY && rnd(100) < 3)
			usleep(30000);
		if (how == DYING && e->at > most)
			raise(SIGKILL);
		if (how == MOVING && e->at > most) {
			char fd[16], at[32];
			snprintf(fd, sizeof fd, "%d", e->fd);
			snprintf(at, sizeof at, "%lu", e->at);
			execl("/proc/self/exe", "buffers", "go on", fd, at, (char *)NULL);
			fail("exec");
		}
	}
}

// told sends the other process what has been received, when all is.
static void told(const struct end *e)
{
	if (write(e->fd, &e->at, sizeof e->at) != sizeof e->at)
		fail("answer");
}

static void whole(int fd, void *p, size_t n, bool out)
{
	for (size_t at = 0; at < n;) {
		ssize_t r = out ? write(fd, (char *)p + at, n - at) : read(fd, (char *)p + at, n - at);
		if (r <= 0)
			fail("%s of %zu bytes", out ? "write" : "read", n);
		at += (size_t)r;
	}
}

// meet makes a connection to a process that reads. Both have had enough to say to have a lane.
static struct end meet(enum manner how)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	char b[400] = {0};
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (bind(l, (struct sockaddr *)&a, n) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&a, &n) < 0)
		fail("listen");
	struct end e = {0};
	e.peer = fork();
	if (e.peer == 0) {
		prctl(PR_SET_PDEATHSIG, SIGKILL);
		close(l);
		e.fd = socket(AF_INET, SOCK_STREAM, 0);
		if (connect(e.fd, (struct sockaddr *)&a, sizeof a) < 0)
			fail("connect");
		for (int i = 0; i < PINGS; i++) {
			whole(e.fd, b, sizeof b, true);
			whole(e.fd, b, sizeof b, false);
		}
		receive(&e, how);
		told(&e);
		_exit(0);
	}
	e.fd = accept4(l, NULL, NULL, SOCK_CLOEXEC); // or fork and exec would take it back to TCP
	if (e.fd < 0)
		fail("accept");
	close(l);
	for (int i = 0; i < PINGS; i++) {
		whole(e.fd, b, sizeof b, false);
		whole(e.fd, b, sizeof b, true);
	}
	return e;
}

// part ends a connection: the other process must have read all.
static void part(struct end *e)
{
	uint64_t got;
	int status;
	if (shutdown(e->fd, SHUT_WR) < 0)
		fail("shutdown");
	whole(e->fd, &got, sizeof got, false);
	if (got != e->at)
		fail("%lu bytes were read of %lu", got, e->at);
	close(e->fd);
	if (waitpid(e->peer, &status, 0) != e->peer || status != 0)
		fail("the reader ended with %#x", status);
}

static bool plain; // buffers are not to be registered

static uint8_t *buffer(const struct end *e, size_t size)
{
	uint8_t *p = exn_buffer(e->fd, size);
	if (!p)
		fail("no buffer of %zu bytes", size);
	if (exn_buffer_registered(e->fd, p) == plain || exn_buffer_registered(e->fd, p + size - 1) == plain)
		fail("a buffer of %zu bytes is %sregistered", size, plain ? "" : "not ");
	return p;
}

// send_part writes what is due out of p, and spoils it.
static ssize_t send_part(struct end *e, uint8_t *p, size_t n)
{
	fill(p, e->at, n);
	ssize_t r = send(e->fd, p, n, MSG_NOSIGNAL);
	int saved = errno;
	memset(p, 0xee, n);
	e->at += r > 0 ? (size_t)r : 0;
	errno = saved;
	return r;
}

static void send_whole(struct end *e, uint8_t *p, size_t n)
{
	ssize_t r = send_part(e, p, n);
	if (r != (ssize_t)n)
		fail("a write of %zu gave %zd", n, r);
}

// once is how many bytes of all connections of this process were copied once, as the library
// publishes it (ext-ds.md, "Status").
static uint64_t once(void)
{
	struct { uint64_t magic; uint32_t version, pid; uint64_t at; uint32_t size, count, field[14]; } head;
	uint64_t sum = 0;
	DIR *d = opendir("/proc/self/fd");
	for (struct dirent *of; d && (of = readdir(d));) {
		char target[64] = "";
		if (readlinkat(dirfd(d), of->d_name, target, sizeof target - 1) < 0 || strncmp(target, "/memfd:exn-ds-family", 20) != 0)
			continue;
		int fd = atoi(of->d_name);
		if (pread(fd, &head, sizeof head, 0) != sizeof head)
			fail("no status");
		for (uint32_t i = 0; i < head.count && i < 64; i++) {
			uint64_t n = 0;
			if (pread(fd, &n, sizeof n, (off_t)(head.at + (uint64_t)i * head.size + head.field[13])) == sizeof n)
				sum += n;
		}
		break;
	}
	closedir(d);
	return sum;
}

// Scenes.

static void sizes(void)
{
	struct end e = meet(ANYHOW);
	size_t size = 5 * MIB;
	uint8_t *p = buffer(&e, size);
	for (int i = 0; i < 60; i++) {
		size_t at = rnd(size), n = 1 + rnd(rnd(3) ? size - at : LEAST);
		send_whole(&e, p + at, n < size - at ? n : size - at);
	}
	send_whole(&e, p, size);
	struct iovec v[3] = {{p + 1, 2 * MIB}, {"", 0}, {p + 3 * MIB, MIB}};
	fill(p + 1, e.at, 2 * MIB);
	fill(p + 3 * MIB, e.at + 2 * MIB, MIB);
	if (writev(e.fd, v, 3) != 3 * MIB)
		fail("writev");
	e.at += 3 * MIB;
	uint64_t copied = once();
	if (plain ? copied > 0 : copied < e.at / 2)
		fail("%lu of %lu bytes were copied once", copied, e.at);
	exn_buffer_free(p);
	part(&e);
}

static void on_signal(int signo) { (void)signo; }

static void interrupts(void)
{
	struct end e = meet(SLOWLY);
	uint8_t *p = buffer(&e, 8 * MIB);
	int cut = 0;
	for (int i = 0; i < 60 || (cut < 5 && i < 1000); i++) { // on a busy machine fewer are cut short
		struct sigaction a = {.sa_handler = on_signal, .sa_flags = i % 3 == 0 ? SA_RESTART : 0};
		struct itimerval t = {.it_value.tv_usec = 1 + (long)rnd(20000)}, none = {0};
		struct timeval limit = {.tv_usec = i % 3 == 2 ? 1 + (long)rnd(20000) : 0};
		sigaction(SIGALRM, &a, NULL);
		setsockopt(e.fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		setitimer(ITIMER_REAL, i % 3 < 2 ? &t : &none, NULL);
		size_t n = LEAST + rnd(6 * MIB);
		ssize_t r = send_part(&e, p + rnd(MIB), n);
		setitimer(ITIMER_REAL, &none, NULL);
		cut += r < (ssize_t)n;
		if (r < 0 && errno != (i % 3 == 2 ? EAGAIN : EINTR))
			fail("send");
		if (r <= 0 && i % 3 == 0) // the kernel goes on only where nothing was written
			fail("a write that goes on after a handler gave %zd of %zu", r, n);
	}
	if (cut < 5)
		fail("only %d writes were cut short", cut);
	struct timeval none = {0};
	setsockopt(e.fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof none);
	exn_buffer_free(p);
	part(&e);
}

static void death(void)
{
	for (int i = 0; i < 10; i++) {
		struct end e = meet(DYING);
		uint8_t *p = buffer(&e, 4 * MIB);
		ssize_t r;
		while ((r = send_part(&e, p, 4 * MIB)) > 0)
			;
		if (errno != EPIPE && errno != ECONNRESET)
			fail("a write to the dead");
		memset(p, 1, 4 * MIB);
		close(e.fd);
		memset(p, 2, 4 * MIB);
		exn_buffer_free(p);
		if (waitpid(e.peer, NULL, 0) != e.peer)
			fail("wait");
	}
}

static void moves(void)
{
	for (int i = 0; i < 10; i++) {
		struct end e = meet(MOVING);
		uint8_t *p = buffer(&e, 4 * MIB);
		for (int k = 0; k < 12; k++)
			send_whole(&e, p + rnd(100), 4 * MIB - 100);
		if (exn_buffer_registered(e.fd, p))
			fail("the connection is still on a lane");
		exn_buffer_free(p);
		part(&e);
	}
}

static void *shuts(void *arg)
{
	const struct end *e = arg;
	usleep((useconds_t)rnd(20000));
	if (shutdown(e->fd, SHUT_WR) < 0)
		fail("shutdown");
	return NULL;
}

static void shutdowns(void)
{
	for (int i = 0; i < 20; i++) {
		struct end e = meet(SLOWLY);
		uint8_t *p = buffer(&e, 4 * MIB);
		pthread_t t;
		uint64_t got;
		pthread_create(&t, NULL, shuts, &e);
		while (send_part(&e, p, 4 * MIB) > 0)
			;
		if (errno != EPIPE)
			fail("a write after shutdown");
		pthread_join(t, NULL);
		whole(e.fd, &got, sizeof got, false);
		if (got != e.at)
			fail("%lu bytes were read of %lu", got, e.at);
		close(e.fd);
		exn_buffer_free(p);
		waitpid(e.peer, NULL, 0);
	}
}

static void await(pid_t pid)
{
	int status;
	if (waitpid(pid, &status, 0) != pid || status != 0)
		fail("a child ended with %#x", status);
}

// room says how many MiB can be registered, in buffers of 8, which it writes out of now and then.
static int room(struct end *e)
{
	enum { EACH = 8, MOST = WHOLE / EACH };
	uint8_t *p[MOST];
	int n = 0;
	for (bool is = true; is && n < MOST; n++) {
		p[n] = exn_buffer(e->fd, EACH * MIB);
		if (!p[n])
			fail("no memory");
		is = exn_buffer_registered(e->fd, p[n]);
	}
	send_whole(e, p[0], EACH * MIB);
	send_whole(e, p[n - 1], EACH * MIB); // which is ordinary
	for (int i = 0; i < n; i++)
		exn_buffer_free(p[i]);
	return (n - 1) * EACH;
}

static void forks(void)
{
	struct end e = meet(LARGE);
	int all = room(&e);
	for (int i = 0; i < 8; i++) {
		uint8_t *p = buffer(&e, 16 * MIB);
		int go[2];
		if (pipe(go) < 0)
			fail("pipe");
		pid_t child = fork();
		if (child == 0) {
			char b;
			close(go[1]);
			if (read(go[0], &b, 1) != 0)
				fail("read");
			if (!exn_buffer_registered(e.fd, p))
				fail("a child's buffer is not registered");
			if (i % 4 == 2)
				execl("/bin/true", "true", (char *)NULL);
			send_whole(&e, p, 16 * MIB);
			if (i % 4 == 3)
				kill(getpid(), SIGKILL);
			if (i % 4 == 1)
				exn_buffer_free(p);
			_exit(0);
		}
		close(go[0]);
		if (i % 2)
			exn_buffer_free(p); // the child has it still
		uint8_t *other = buffer(&e, 16 * MIB);
		if (i % 2 && other == p)
			fail("what the child has was given out");
		memset(other, 0xdd, 16 * MIB);
		close(go[1]);
		if (i % 4 == 3)
			waitpid(child, NULL, 0);
		else
			await(child);
		if (i % 4 != 2)
			e.at += 16 * MIB;
		if (i % 2 == 0)
			exn_buffer_free(p);
		exn_buffer_free(other);
		int lost = i % 4 == 3 ? 16 : 0; // who was killed returns nothing
		all -= lost;
		int now = room(&e);
		if (now != all)
			fail("there is room for %d MiB after round %d, want %d", now, i, all);
	}
	part(&e);
}

// mapped counts the mappings of channels.
static int mapped(void)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[512];
	int n = 0;
	while (f && fgets(line, sizeof line, f))
		n += strstr(line, "exn-ds-channel") != NULL;
	fclose(f);
	return n;
}

static void ends(void)
{
	uint8_t *p[3];
	struct end e = meet(LARGE);
	for (int i = 0; i < 3; i++) {
		p[i] = buffer(&e, MIB);
		fill(p[i], 0, MIB);
	}
	send_whole(&e, p[1], MIB);
	fill(p[1], 0, MIB);
	part(&e);
	struct end another = meet(LARGE); // by which time the first channel is gone
	if (mapped() != 3)
		fail("%d mappings: there should be those of one channel, and one for buffers", mapped());
	for (int i = 0; i < 3; i++) {
		verify(p[i], 0, MIB);
		if (exn_buffer_registered(another.fd, p[i]))
			fail("registered for another channel");
		send_whole(&another, p[i], MIB);
	}
	pid_t child = fork();
	if (child == 0) {
		for (int i = 0; i < 3; i++) {
			memset(p[i], 3, MIB);
			exn_buffer_free(p[i]);
		}
		_exit(0);
	}
	await(child);
	for (int i = 0; i < 3; i++) {
		fill(p[i], 0, MIB);
		exn_buffer_free(p[i]);
		if (mapped() != (i < 2 ? 3 : 2))
			fail("%d mappings after %d buffers were freed", mapped(), i + 1);
	}
	part(&another);
}

static void *streams(void *arg)
{
	struct end *e = arg;
	enum { PART = 100000 };
	uint8_t *b = malloc(PART);
	for (int i = 0; i < 600; i++)
		send_whole(e, b, 1 + rnd(PART));
	free(b);
	return NULL;
}

static void cycles(void)
{
	enum { BUSY = 3, HAVE = 6 };
	struct end e[BUSY];
	pthread_t t[BUSY];
	uint8_t *p[HAVE] = {0};
	size_t size[HAVE];
	for (int i = 0; i < BUSY; i++) {
		e[i] = meet(ANYHOW);
		pthread_create(&t[i], NULL, streams, &e[i]);
	}
	struct end mine = meet(LARGE);
	int all = room(&mine);
	for (int i = 0; i < 1000; i++) {
		int k = i % HAVE;
		if (p[k]) {
			send_whole(&mine, p[k], size[k]);
			exn_buffer_free(p[k]);
		}
		size[k] = 1 + rnd(i % 10 ? 2 * MIB : 8 * MIB);
		p[k] = buffer(&mine, size[k]);
		memset(p[k], 0xbb, size[k]);
	}
	for (int k = 0; k < HAVE; k++)
		exn_buffer_free(p[k]);
	for (int i = 0; i < 10; i++) {
		int now = room(&mine);
		if (now < all - 8 || now > all + 8) // lanes may have taken windows, and come to have left them
			fail("there is room for %d MiB in round %d, there was for %d", now, i, all);
	}
	for (int i = 0; i < BUSY; i++) {
		pthread_join(t[i], NULL);
		part(&e[i]);
	}
	part(&mine);
}

static void programs(void)
{
	struct end e = meet(LARGE);
	uint8_t *p = buffer(&e, 2 * MIB);
	fill(p, 0, 2 * MIB);
	execl("/no such program", "x", (char *)NULL);
	if (errno != ENOENT)
		fail("exec");
	verify(p, 0, 2 * MIB);
	memset(p, 0, 2 * MIB);
	exn_buffer_free(p);
	send_whole(&e, malloc(MIB), MIB);
	part(&e);
}

static void arguments(void)
{
	struct end e = meet(LARGE);
	int here;
	errno = 0;
	if (exn_buffer(e.fd, 0) || errno != EINVAL)
		fail("size 0");
	if (exn_buffer(e.fd, SIZE_MAX) || errno != ENOMEM)
		fail("all sizes");
	if (exn_buffer(e.fd, PTRDIFF_MAX) || errno != ENOMEM)
		fail("half of all sizes");
	uint8_t *large = exn_buffer(e.fd, (size_t)WHOLE * MIB);
	if (!large || exn_buffer_registered(e.fd, large))
		fail("more than there is room for");
	large[(size_t)WHOLE * MIB - 1] = 1;
	exn_buffer_free(large);
	uint8_t *p = buffer(&e, MIB + 1);
	for (int fd = -1; fd < 3; fd++) {
		uint8_t *o = exn_buffer(fd, 100);
		if (!o || exn_buffer_registered(fd, o) || exn_buffer_registered(e.fd, o) || exn_buffer_registered(fd, p))
			fail("descriptor %d", fd);
		memset(o, 1, 100);
		exn_buffer_free(o);
	}
	if (exn_buffer_registered(e.fd, &here) || exn_buffer_registered(e.fd, NULL) || exn_buffer_registered(e.fd, p - 1))
		fail("memory that is no buffer");
	// The library knows what it has given.
	exn_ds_buffer_free(NULL);
	exn_ds_buffer_free(&here);
	exn_ds_buffer_free(p + 4096);
	if (!exn_buffer_registered(e.fd, p))
		fail("freed in the middle");
	exn_ds_buffer_free(p);
	exn_ds_buffer_free(p);
	uint8_t *again = buffer(&e, MIB);
	send_whole(&e, again, MIB);
	exn_buffer_free(again);
	part(&e);
}

static void without(void)
{
	plain = true;
	sizes();
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*play)(void);
	} scenes[] = {
		{"sizes", sizes}, {"interrupts", interrupts}, {"death", death}, {"moves", moves}, {"shutdowns", shutdowns}, {"forks", forks},
		{"ends", ends}, {"cycles", cycles}, {"programs", programs}, {"arguments", arguments}, {"plain", without},
	};
	scene = argc > 1 ? argv[1] : "";
	if (argc == 4 && !strcmp(scene, "go on")) { // what MOVING became
		struct end e = {.fd = atoi(argv[2]), .at = strtoull(argv[3], NULL, 10)};
		receive(&e, ANYHOW);
		told(&e);
		return 0;
	}
	for (size_t i = 0; i < sizeof scenes / sizeof *scenes; i++)
		if (!strcmp(scene, scenes[i].name)) {
			scenes[i].play();
			return 0;
		}
	fail("no such scene");
}
