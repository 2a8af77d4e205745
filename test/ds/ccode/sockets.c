// SPDX-License-Identifier: Apache-2.0
//
// sockets.c makes the calls that make, name, set and end sockets.
#include "calls.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

// Sockets: FAMILY is 4, 6 or m (IPv4 through an IPv6 socket), for loopback, or an
// IPv4 address.

static socklen_t address(const char *text, bool any, int port, struct sockaddr_storage *ss)
{
	char family = strchr(text, '.') ? '.' : text[0];
	memset(ss, 0, sizeof *ss);
	if (family == '.') {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		inet_pton(AF_INET, text, &in->sin_addr);
		return sizeof *in;
	}
	if (family == '4') {
		struct sockaddr_in *in = (struct sockaddr_in *)ss;
		in->sin_family = AF_INET;
		in->sin_port = htons((uint16_t)port);
		in->sin_addr.s_addr = htonl(any ? INADDR_ANY : INADDR_LOOPBACK);
		return sizeof *in;
	}
	struct sockaddr_in6 *in = (struct sockaddr_in6 *)ss;
	in->sin6_family = AF_INET6;
	in->sin6_port = htons((uint16_t)port);
	in->sin6_addr = any ? in6addr_any : in6addr_loopback;
	if (!any && family == 'm')
		inet_pton(AF_INET6, "::ffff:127.0.0.1", &in->sin6_addr);
	return sizeof *in;
}

static void c_socket(struct call *c) // H socket FAMILY [nonblock]
{
	int type = SOCK_STREAM | SOCK_CLOEXEC * (strcmp(arg(c, 3), "cloexec") == 0) |
		SOCK_NONBLOCK * (strcmp(arg(c, 3), "nonblock") == 0);
	new(c, socket(arg(c, 2)[0] == '4' ? AF_INET : AF_INET6, type, 0));
}

static void c_listen(struct call *c) // H listen FAMILY
{
	struct sockaddr_storage ss;
	socklen_t n = sizeof ss;
	const char *family = arg(c, 2);
	n = address(family, family[0] == 'm', 0, &ss);
	int fd = socket(ss.ss_family, SOCK_STREAM, 0);
	if (fd < 0 || bind(fd, (struct sockaddr *)&ss, n) < 0 || listen(fd, 16) < 0) {
		result(c, -1);
		return;
	}
	n = sizeof ss;
	getsockname(fd, (struct sockaddr *)&ss, &n);
	snprintf(c->note, sizeof c->note, "port=%d", ntohs(((struct sockaddr_in *)&ss)->sin_port));
	new(c, fd);
}

static void c_connect(struct call *c) // connect H FAMILY PORT
{
	struct sockaddr_storage ss;
	socklen_t n = address(arg(c, 2), false, (int)number(c, 3), &ss);
	result(c, connect(fd_of(c, 1), (struct sockaddr *)&ss, n));
}

static void c_bind(struct call *c) // bind H ADDRESS
{
	struct sockaddr_storage ss;
	socklen_t n = address(arg(c, 2), false, 0, &ss);
	result(c, bind(fd_of(c, 1), (struct sockaddr *)&ss, n));
}

static void c_accept(struct call *c) // H accept LISTENER [nonblock]
{
	if (c->argc > 3)
		new(c, accept4(fd_of(c, 2), NULL, NULL, SOCK_NONBLOCK));
	else
		new(c, accept(fd_of(c, 2), NULL, NULL));
}

static void c_name(struct call *c) // sockname|peername H PORT: whether the port is PORT
{
	struct sockaddr_storage ss;
	socklen_t n = sizeof ss;
	char text[INET6_ADDRSTRLEN] = "";
	bool peer = c->argv[0][0] == 'p';
	int r = peer ? getpeername(fd_of(c, 1), (struct sockaddr *)&ss, &n)
		     : getsockname(fd_of(c, 1), (struct sockaddr *)&ss, &n);
	result(c, r);
	if (r < 0)
		return;
	struct sockaddr_in *in = (struct sockaddr_in *)&ss;
	inet_ntop(ss.ss_family, ss.ss_family == AF_INET ? (void *)&in->sin_addr :
		(void *)&((struct sockaddr_in6 *)&ss)->sin6_addr, text, sizeof text);
	say(c, " %s %s", text, ntohs(in->sin_port) == number(c, 2) ? "that" : "other");
}

static void c_shutdown(struct call *c) // shutdown H rd|wr|rdwr
{
	const char *how = arg(c, 2);
	result(c, shutdown(fd_of(c, 1), strcmp(how, "rd") == 0 ? SHUT_RD : strcmp(how, "wr") == 0 ? SHUT_WR : SHUT_RDWR));
}

static void c_close(struct call *c) { result(c, close(fd_of(c, 1))); } // close H
static void c_closerange(struct call *c) // closerange H
{
	unsigned fd = (unsigned)fd_of(c, 1);
	result(c, close_range(fd, fd, 0));
}
static void c_dup(struct call *c) { new(c, dup(fd_of(c, 2))); } // H dup OLD
static void c_fdup(struct call *c) { new(c, fcntl(fd_of(c, 2), F_DUPFD_CLOEXEC, 50)); } // H fdup OLD
static void c_dup2(struct call *c) // dup2 OLD NEW: both handles exist
{
	int fd = fd_of(c, 2);
	say(c, "%s", dup2(fd_of(c, 1), fd) == fd ? "ok" : strerrorname_np(errno));
}

static void c_nonblock(struct call *c) // nonblock H 0|1 [ioctl]
{
	int fd = fd_of(c, 1), on = (int)number(c, 2);
	if (c->argc > 3) {
		result(c, ioctl(fd, FIONBIO, &on));
		return;
	}
	int flags = fcntl(fd, F_GETFL);
	say(c, "%s ", flags < 0 ? "?" : flags & O_NONBLOCK ? "was-on" : "was-off");
	result(c, fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK));
}

// Options

static const struct option { const char *name; int level, option; enum { number_option, linger_option, time_option, name_option, filter_option } kind; } options[] = {
	{"nodelay", IPPROTO_TCP, TCP_NODELAY, number_option},
	{"cork", IPPROTO_TCP, TCP_CORK, number_option},
	{"rcvlowat", SOL_SOCKET, SO_RCVLOWAT, number_option},
	{"keepalive", SOL_SOCKET, SO_KEEPALIVE, number_option},
	{"reuseaddr", SOL_SOCKET, SO_REUSEADDR, number_option},
	{"rcvbuf", SOL_SOCKET, SO_RCVBUF, number_option},
	{"sndbuf", SOL_SOCKET, SO_SNDBUF, number_option},
	{"error", SOL_SOCKET, SO_ERROR, number_option},
	{"type", SOL_SOCKET, SO_TYPE, number_option},
	{"acceptconn", SOL_SOCKET, SO_ACCEPTCONN, number_option},
	{"linger", SOL_SOCKET, SO_LINGER, linger_option},
	{"rcvtimeo", SOL_SOCKET, SO_RCVTIMEO, time_option},
	{"sndtimeo", SOL_SOCKET, SO_SNDTIMEO, time_option},
	{"zerocopy", SOL_SOCKET, SO_ZEROCOPY, number_option},
	{"timestamp", SOL_SOCKET, SO_TIMESTAMP, number_option},
	{"timestampns", SOL_SOCKET, SO_TIMESTAMPNS, number_option},
	{"timestamping", SOL_SOCKET, SO_TIMESTAMPING, number_option},
	{"pacing", SOL_SOCKET, SO_MAX_PACING_RATE, number_option},
	{"filter", SOL_SOCKET, SO_ATTACH_FILTER, filter_option},
	{"oobinline", SOL_SOCKET, SO_OOBINLINE, number_option},
	{"peekoff", SOL_SOCKET, SO_PEEK_OFF, number_option},
	{"priority", SOL_SOCKET, SO_PRIORITY, number_option},
	{"ulp", IPPROTO_TCP, TCP_ULP, name_option},
	{"repair", IPPROTO_TCP, TCP_REPAIR, number_option},
	{"fastopen", IPPROTO_TCP, TCP_FASTOPEN, number_option},
	{"fastopenconnect", IPPROTO_TCP, TCP_FASTOPEN_CONNECT, number_option},
	{"inq", IPPROTO_TCP, TCP_INQ, number_option},
	{"quickack", IPPROTO_TCP, TCP_QUICKACK, number_option},
	{"usertimeout", IPPROTO_TCP, TCP_USER_TIMEOUT, number_option},
	{"notsentlowat", IPPROTO_TCP, TCP_NOTSENT_LOWAT, number_option},
	{"recverr", IPPROTO_IP, IP_RECVERR, number_option},
	{"tos", IPPROTO_IP, IP_TOS, number_option},
	{NULL, 0, 0, 0},
};

static const struct option *option(const char *name)
{
	const struct option *o = options;
	while (o->name && strcmp(o->name, name) != 0)
		o++;
	return o;
}

static void c_set(struct call *c) // set H OPTION VALUE: linger in s (-1 off), times in ms
{
	const struct option *o = option(arg(c, 2));
	long v = number(c, 3);
	int i = (int)v;
	struct linger l = {.l_onoff = v >= 0, .l_linger = v >= 0 ? i : 0};
	struct timeval t = {.tv_sec = v / 1000, .tv_usec = v % 1000 * 1000};
	struct sock_filter all = {.code = BPF_RET | BPF_K, .k = 0xffffffff};
	struct sock_fprog filter = {.len = 1, .filter = &all};
	if (o->kind == filter_option) {
		result(c, setsockopt(fd_of(c, 1), o->level, o->option, &filter, sizeof filter));
		return;
	}
	if (o->kind == name_option) {
		result(c, setsockopt(fd_of(c, 1), o->level, o->option, arg(c, 3), (socklen_t)strlen(arg(c, 3))));
		return;
	}
	const void *p = o->kind == linger_option ? (void *)&l : o->kind == time_option ? (void *)&t : (void *)&i;
	socklen_t n = o->kind == linger_option ? sizeof l : o->kind == time_option ? sizeof t : sizeof i;
	result(c, setsockopt(fd_of(c, 1), o->level, o->option, p, n));
}

static void c_get(struct call *c) // get H OPTION
{
	const struct option *o = option(arg(c, 2));
	union { int i; struct linger l; struct timeval t; } v = {0};
	socklen_t n = sizeof v;
	int r = getsockopt(fd_of(c, 1), o->level, o->option, &v, &n);
	result(c, r);
	if (r < 0)
		return;
	if (o->kind == linger_option)
		say(c, " %d,%d", v.l.l_onoff, v.l.l_linger);
	else if (o->kind == time_option)
		say(c, " %ldms", v.t.tv_sec * 1000 + v.t.tv_usec / 1000);
	else if (o->option == SO_ERROR)
		say(c, " %s", v.i ? strerrorname_np(v.i) : "none");
	else
		say(c, " %d", v.i);
}

const struct entry socket_calls[] = {
	{"socket", c_socket, true}, {"listen", c_listen, true}, {"accept", c_accept, true},
	{"dup", c_dup, true}, {"fdup", c_fdup, true}, {"connect", c_connect, false},
	{"bind", c_bind, false}, {"sockname", c_name, false}, {"peername", c_name, false}, {"shutdown", c_shutdown, false},
	{"close", c_close, false}, {"closerange", c_closerange, false}, {"dup2", c_dup2, false},
	{"nonblock", c_nonblock, false}, {"set", c_set, false}, {"get", c_get, false},
	{NULL, NULL, false},
};
