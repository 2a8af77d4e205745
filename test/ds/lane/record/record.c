// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// Record writes the test vectors of ext-ds.md, made by the library itself, which is
// linked into it. What it writes is the same in each run, so it can be compared.
//
//	record layout    offsets, sizes, limits, numbers
//	record slots     slots, honest and not, and what a reader takes them for
//	record SCENE     a connection's life; see scenes
//
// A scene is one thread that makes ordinary socket calls on both ends, a (which
// connected) and b, of a connection over loopback. After each call it notes
//
//	offer E NAME TARGET    E's offer has appeared in the fabric directory
//	message E BYTES        E sent this on the control socket
//	tcp E BYTES            E's kernel was given these stream bytes
//	memory E AT BYTES      these words of E's memory file have changed
//	call E CALL = RESULT   the call, and the bytes that it gave
//
// Bytes are hexadecimal; 61*40 is 40 times 61. What differs between runs is
// replaced: ports, inodes, names, the namespace's cookie; the word "cpu" is left out, and so are dates of slots.
// The clock stands still, so that nothing expires on a slow machine.
#include "real.h"

#include <dirent.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "channel.h"
#include "conn.h"
#include "directory.h"
#include "receive.h"

#include "record.h"

// Instead of the C library's.
int clock_gettime(clockid_t which, struct timespec *t)
{
	static struct timespec still[16];
	if (which < 0 || which >= 16)
		return (int)syscall(SYS_clock_gettime, which, t);
	if (!still[which].tv_sec && syscall(SYS_clock_gettime, which, &still[which]) < 0)
		return -1;
	*t = still[which];
	return 0;
}

_Noreturn void fail(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	vfprintf(stderr, format, ap);
	fprintf(stderr, " (%s)\n", strerrorname_np(errno));
	exit(1);
}

void print_bytes(const void *from, size_t n)
{
	enum { RUN = 8 }; // shorter ones are written out
	const uint8_t *p = from;
	bool gap = false;
	for (size_t i = 0; i < n;) {
		size_t k = 1;
		while (i + k < n && p[i + k] == p[i])
			k++;
		if (k < RUN) {
			k = 1;
			printf("%s%02x", gap ? " " : "", p[i]);
			gap = false;
		} else {
			printf("%s%02x*%zu", i ? " " : "", p[i], k);
			gap = true;
		}
		i += k;
	}
	putchar('\n');
}

// An end of the connection.
static struct end {
	char name;
	int fd;
	struct conn *c;
	struct lane_memory own; // its file, once there is one
	uint8_t *was;           // as it was noted last
	size_t sent;            // bytes that its kernel was given
	bool over;              // and its end
	uint16_t port;          // its number, and what is written instead
	uint64_t fake_ino;
	uint16_t fake_port;
} a = {.name = 'a', .fd = -1, .fake_ino = 1000, .fake_port = 40000}, b = {.name = 'b', .fd = -1, .fake_ino = 2000, .fake_port = 80};

static const char fake_listener[] = "p-1-0123456789abcdef";

static struct end *peer_of(struct end *e) { return e == &a ? &b : &a; }

static uint64_t ino_of(const struct end *e)
{
	struct stat st;
	if (fstat(e->fd, &st) < 0)
		fail("fstat");
	return st.st_ino;
}

static uint64_t fake_ino(uint64_t ino)
{
	if (ino == 0)
		return 0;
	if (ino != ino_of(&a) && ino != ino_of(&b))
		fail("inode %lu is of neither end", ino);
	return ino == ino_of(&a) ? a.fake_ino : b.fake_ino;
}

static uint16_t fake_port(uint16_t port)
{
	if (port == 0)
		return 0;
	if (port != a.port && port != b.port)
		fail("port %u is of neither end", ntohs(port));
	return htons(port == a.port ? a.fake_port : b.fake_port);
}

// Who sends what: the library calls through `real`.
static struct real was;

static void note_message(int fd, const struct message *from)
{
	struct message m = *from;
	struct end *e = NULL;
	// HELLO is the first from either side, and the one that connects is first.
	static struct end *inviter;
	static int hellos;
	if (m.kind == MESSAGE_HELLO) {
		if (hellos == 0)
			inviter = a.c->state == CONN_COUNTING && b.c->state == CONN_OFFERED ? &a : &b;
		e = hellos++ ? peer_of(inviter) : inviter;
	}
	for (struct channel *ch = family_channel_next(NULL); ch && !e; ch = family_channel_next(ch))
		if (ch->ctl == fd)
			e = ch->inviter ? inviter : peer_of(inviter);
	if (!e)
		fail("a message on descriptor %d", fd);
	m.ino = fake_ino(m.ino);
	m.peer_ino = fake_ino(m.peer_ino);
	m.tuple.local_port = fake_port(m.tuple.local_port);
	m.tuple.remote_port = fake_port(m.tuple.remote_port);
	if (m.name[0]) {
		memset(m.name, 0, sizeof m.name);
		memcpy(m.name, fake_listener, sizeof fake_listener);
	}
	printf("message %c ", e->name);
	print_bytes(&m, sizeof m);
}

static void note_tcp(int fd, const struct iovec *iov, size_t n, size_t sent)
{
	struct end *e = fd == a.fd ? &a : &b;
	uint8_t *all = malloc(sent + 1);
	size_t at = 0;
	for (size_t i = 0; i < n && at < sent; i++) {
		size_t k = iov[i].iov_len < sent - at ? iov[i].iov_len : sent - at;
		memcpy(all + at, iov[i].iov_base, k);
		at += k;
	}
	printf("tcp %c ", e->name);
	print_bytes(all, sent);
	e->sent += sent;
	free(all);
}

static ssize_t noted_sendmsg(int fd, const struct msghdr *h, int flags)
{
	ssize_t r = was.sendmsg(fd, h, flags);
	if (r > 0 && (fd == a.fd || fd == b.fd))
		note_tcp(fd, h->msg_iov, h->msg_iovlen, (size_t)r);
	else if (r == (ssize_t)sizeof(struct message))
		note_message(fd, h->msg_iov[0].iov_base);
	return r;
}

static ssize_t noted_send(int fd, const void *p, size_t n, int flags)
{
	struct iovec iov = {(void *)(uintptr_t)p, n};
	ssize_t r = was.send(fd, p, n, flags);
	if (r > 0 && (fd == a.fd || fd == b.fd))
		note_tcp(fd, &iov, 1, (size_t)r);
	return r;
}

// note_offers looks whose offers are there that were not before.
static void note_offers(void)
{
	static bool noted[2];
	DIR *d = directory < 0 ? NULL : fdopendir(openat(directory, ".", O_DIRECTORY));
	for (struct dirent *entry; d && (entry = readdir(d));) {
		char target[256], name[256];
		unsigned long long ino;
		if (entry->d_name[0] != 'o')
			continue;
		const char *hex = strrchr(entry->d_name, '-') + 1;
		uint16_t port[2];
		if (strlen(hex) != 72)
			fail("%s", entry->d_name);
		for (int i = 0; i < 2; i++) {
			unsigned value;
			if (sscanf(hex + 36 * i + 32, "%4x", &value) != 1)
				fail("%s", entry->d_name);
			port[i] = htons((uint16_t)value);
		}
		struct end *e = port[0] == a.port ? &a : &b;
		ssize_t n = readlinkat(dirfd(d), entry->d_name, target, sizeof target - 1);
		if (noted[e == &b] || n < 0)
			continue;
		noted[e == &b] = true;
		target[n] = 0;
		if (sscanf(strchr(target, ':') + 1, "%llu", &ino) != 1)
			fail("%s", target);
		snprintf(name, sizeof name, "o-1-%.32s%04x%.32s%04x", hex, ntohs(fake_port(port[0])), hex + 36, ntohs(fake_port(port[1])));
		printf("offer %c %s %s:%lu\n", e->name, name, fake_listener, fake_ino(ino));
	}
	if (d)
		closedir(d);
}

static void print_undated(const struct end *e, uint64_t at, uint64_t end)
{
	uint64_t slots = LANE_HEAD + (uint64_t)e->own.lanes * LANE_CTL, behind = slots + (uint64_t)e->own.lanes * e->own.slots * LANE_SLOT;
	uint8_t *copy = malloc(end - at);
	memcpy(copy, e->own.base + at, end - at);
	for (uint64_t slot = slots; slot < behind; slot += LANE_SLOT)
		if (slot >= at && slot < end)
			memset(copy + slot - at, 0, 4);
	print_bytes(copy, end - at);
	free(copy);
}

static void note_memory(struct end *e)
{
	if (!e->own.base) {
		// From the time when both know their channel, and for good, for they forget it.
		if (!a.c || !b.c || !a.c->own || !b.c->own || !a.c->channel || !b.c->channel)
			return;
		e->own = e->c->channel->own;
		e->was = calloc(1, e->own.size);
	}
	for (uint64_t at = 0; at < e->own.size; at += 8) {
		uint64_t end = at;
		while (end < e->own.size && memcmp(e->own.base + end, e->was + end, 8) != 0 && end != offsetof(struct lane_head, cpu))
			end += 8;
		if (end == at)
			continue;
		memcpy(e->was + at, e->own.base + at, end - at);
		printf("memory %c %lu ", e->name, at);
		print_undated(e, at, end);
		at = end - 8;
	}
}

// note tells a call and what it has done.
static void note(struct end *e, const void *bytes, ssize_t result, const char *format, ...)
{
	va_list ap;
	note_offers();
	note_memory(&a);
	note_memory(&b);
	va_start(ap, format);
	printf("call %c ", e->name);
	vprintf(format, ap);
	va_end(ap);
	printf(" = %zd", result);
	if (bytes && result > 0) {
		putchar(' ');
		print_bytes(bytes, (size_t)result);
	} else {
		putchar('\n');
	}
}

void put(char who, char letter, size_t n)
{
	struct end *e = who == 'a' ? &a : &b;
	char *text = malloc(n);
	memset(text, letter, n);
	ssize_t r = send(e->fd, text, n, MSG_NOSIGNAL | MSG_DONTWAIT);
	if (r != (ssize_t)n)
		fail("%c: send %zu gave %zd", who, n, r);
	note(e, text, r, "send %zu", n);
	free(text);
}

// arrived waits until the kernel has for e all that it will have.
static void arrived(struct end *e)
{
	const struct end *peer = peer_of(e);
	struct pollfd p = {e->fd, POLLRDHUP, 0};
	if (peer->over && real.poll(&p, 1, -1) != 1)
		fail("poll");
	for (int n = 0; !peer->over && (size_t)n < peer->sent - e->c->tcp_rx;)
		if (real.ioctl(e->fd, FIONREAD, &n) < 0)
			fail("FIONREAD");
}

void get(char who, size_t n, ssize_t want)
{
	struct end *e = who == 'a' ? &a : &b;
	char *text = malloc(n);
	arrived(e);
	ssize_t r = recv(e->fd, text, n, MSG_DONTWAIT);
	if (r != want)
		fail("%c: recv %zu gave %zd, not %zd", who, n, r, want);
	note(e, text, r, "recv %zu", n);
	free(text);
}

void half_close(char who)
{
	struct end *e = who == 'a' ? &a : &b;
	e->over = true;
	note(e, NULL, shutdown(e->fd, SHUT_WR), "shutdown");
}

void end(char who)
{
	struct end *e = who == 'a' ? &a : &b;
	int fd = e->fd;
	e->c = NULL;
	e->fd = -1;
	e->over = true;
	note(e, NULL, close(fd), "close");
}

void leave(char who, bool off)
{
	struct end *e = who == 'a' ? &a : &b;
	e->c->tx_off = off;
	note(e, NULL, 0, off ? "leaves" : "may-switch");
}

void withdraw(char who)
{
	struct end *e = who == 'a' ? &a : &b;
	if (lock_take(&e->c->rx_lock, NULL) != LOCK_OK)
		fail("no lock");
	rx_freeze(e->c, e->fd);
	lock_give(&e->c->rx_lock);
	note(e, NULL, 0, "withdraws");
}

// note_board says where in the board the two marks of this connection lie.
static void note_board(void)
{
	static uint32_t word[16384];
	int fd = openat(directory, "board-1", O_RDONLY);
	ssize_t n = fd < 0 ? -1 : read(fd, word, sizeof word);
	if (n < 0)
		fail("no board");
	close(fd);
	printf("board %zd", n);
	for (ssize_t i = 0; i < n / 4; i++)
		if (word[i])
			printf(" %zd", 4 * i - 4 * (b.port % 4096)); // as if the port were a multiple of 4096
	putchar('\n');
}

// meet makes the connection and talks on it until both ends are engaged.
static void meet(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)}, own;
	socklen_t n = sizeof at;
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (listener < 0 || bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 1) < 0 ||
	    getsockname(listener, (struct sockaddr *)&at, &n) < 0)
		fail("listen");
	a.fd = socket(AF_INET, SOCK_STREAM, 0);
	if (a.fd < 0 || connect(a.fd, (struct sockaddr *)&at, n) < 0 || getsockname(a.fd, (struct sockaddr *)&own, &n) < 0)
		fail("connect");
	b.fd = accept(listener, NULL, NULL);
	if (b.fd < 0 || close(listener) < 0)
		fail("accept");
	int yes = 1; // so that what is sent arrives, whatever is acknowledged
	if (setsockopt(a.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0 || setsockopt(b.fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes) < 0)
		fail("TCP_NODELAY");
	a.port = own.sin_port;
	b.port = at.sin_port;
	a.c = conn_get(a.fd);
	b.c = conn_get(b.fd);
	if (!a.c || !b.c)
		fail("the library does not track the connection");
	conn_put(a.c);
	conn_put(b.c);
	for (int i = 0; a.c->state != CONN_ENGAGED || b.c->state != CONN_ENGAGED; i++) {
		if (i == 50)
			fail("not engaged: %s (%s) and %s (%s)", state_names[a.c->state], reason_names[a.c->reason], state_names[b.c->state],
			     reason_names[b.c->reason]);
		put('a', 'A', 4);
		get('b', 100, 4);
		put('b', 'B', 3);
		get('a', 100, 3);
	}
	note_board();
}

int main(int argc, char **argv)
{
	setvbuf(stdout, NULL, _IOFBF, 1 << 16);
	if (argc != 2)
		fail("usage: record layout|slots|round|SCENE");
	if (!strcmp(argv[1], "layout"))
		return layout();
	if (!strcmp(argv[1], "slots"))
		return slots();
	if (!strcmp(argv[1], "round"))
		return round_of();
	was = real;
	real.send = noted_send;
	real.sendmsg = noted_sendmsg;
	for (const struct scene *s = scenes; s->name; s++)
		if (!strcmp(argv[1], s->name)) {
			meet();
			s->play();
			return 0;
		}
	fail("no scene %s", argv[1]);
}
