// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that set and read options. docs/options.md says for each option
// what becomes of it; what is not named here or there is the kernel's, which
// answers for the TCP socket.
#include "hook.h"

#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <sys/ioctl.h>

#include "conn.h"
#include "files.h"
#include "stream.h"

// Younger than the headers of some C libraries.
enum {
	TIMESTAMP_NEW = 63, TIMESTAMPNS_NEW = 64, TIMESTAMPING_NEW = 65,
	TXTIME = 61,
	MD5SIG_EXT = 32, ZEROCOPY_RECEIVE_OPTION = 35, INQ = 36, TX_DELAY = 37, AO_ADD_KEY = 38, AO_DEL_KEY = 39, AO_INFO = 40,
	AO_REPAIR = 42,
};

// unlaned: options that change what the kernel does with the bytes, or what else
// it says of them. Bytes on a lane never meet the kernel.
static bool unlaned(int level, int option)
{
	switch (level) {
	case SOL_SOCKET:
		switch (option) {
		case SO_TIMESTAMPING:
		case TIMESTAMPING_NEW:
		case SO_MAX_PACING_RATE:
		case TXTIME:
		case SO_ATTACH_FILTER:
		case SO_ATTACH_BPF:
		case SO_PEEK_OFF:
			return true;
		}
		return false;
	case IPPROTO_TCP:
		switch (option) {
		case TCP_ULP: // kTLS
		case TCP_REPAIR:
		case TCP_REPAIR_QUEUE:
		case TCP_QUEUE_SEQ:
		case TCP_REPAIR_OPTIONS:
		case TCP_REPAIR_WINDOW:
		case TCP_MD5SIG:
		case MD5SIG_EXT:
		case AO_ADD_KEY:
		case AO_DEL_KEY:
		case AO_INFO:
		case AO_REPAIR:
		case TCP_FASTOPEN_CONNECT: // TCP_FASTOPEN is for who listens, and says nothing of those who connect
		case ZEROCOPY_RECEIVE_OPTION:
		case TX_DELAY:
			return true;
		}
		return false;
	case IPPROTO_IP:
		return option == IP_RECVERR;
	case IPPROTO_IPV6:
		return option == IPV6_RECVERR;
	}
	return false;
}

// to_kernel takes a connection off its lanes before the kernel gets an option that
// they do not do. False: it cannot be done now; the option must not be set.
static bool to_kernel(struct conn *c, int fd)
{
	c->unlaned = true; // those that a listener accepts inherit the option
	return conn_try_stay(c, fd, REASON_OPTION);
}

// stamps: they ask for the time at which bytes came. Nothing changes for who only reads
// (iperf 2); recvmsg goes to the kernel for it.
static bool stamps(int level, int option)
{
	return level == SOL_SOCKET && (option == SO_TIMESTAMP || option == SO_TIMESTAMPNS || option == TIMESTAMP_NEW || option == TIMESTAMPNS_NEW);
}

EXPORT int setsockopt(int fd, int level, int option, const void *value, socklen_t n)
{
	HOOK();
	bool leaves = unlaned(level, option), inq = level == IPPROTO_TCP && option == INQ;
	struct conn *c = leaves || inq || level == SOL_SOCKET ? conn_get(fd) : NULL;
	if (!c)
		return real.setsockopt(fd, level, option, value, n);
	int r = -1;
	if (leaves && !to_kernel(c, fd))
		errno = EBUSY;
	else
		r = real.setsockopt(fd, level, option, value, n);
	int saved = errno;
	if (r == 0 && inq)
		c->inq = *(const int *)value != 0;
	if (r == 0 && stamps(level, option))
		c->stamps = *(const int *)value != 0;
	if (r == 0 && level == SOL_SOCKET && c->named) // who is named later has all read then
		conn_options(c, fd, option);
	conn_put(c);
	errno = saved;
	return r;
}

EXPORT int getsockopt(int fd, int level, int option, void *value, socklen_t *n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	if (!c)
		return real.getsockopt(fd, level, option, value, n);
	int r = -1;
	if (level == SOL_SOCKET && option == SO_ERROR && conn_engaged(c))
		stream_probe(c, fd);
	if (level == IPPROTO_TCP && option == ZEROCOPY_RECEIVE_OPTION && !to_kernel(c, fd)) // it reads
		errno = EBUSY;
	else
		r = real.getsockopt(fd, level, option, value, n);
	int saved = errno;
	if (r == 0 && level == SOL_SOCKET && option == SO_RCVLOWAT && *n >= sizeof(int) && conn_engaged(c))
		*(int *)value = (int)c->rcvlowat; // the kernel's is another
	if (r == 0 && level == SOL_SOCKET && option == SO_ERROR && *n >= sizeof(int) && conn_engaged(c)) {
		int *e = value, ours = atomic_exchange(&c->error, 0);
		if (ours || c->dead)
			*e = ours;
		c->told |= *e != 0;
	}
	conn_put(c);
	errno = saved;
	return r;
}

EXPORT int ioctl(int fd, unsigned long requested, ...)
{
	unsigned request = (unsigned)requested; // all that the kernel looks at, and all that musl's programs set
	va_list ap;
	HOOK();
	va_start(ap, requested);
	void *arg = va_arg(ap, void *);
	va_end(ap);
	struct conn *c = conn_get(fd);
	if (!c)
		return real.ioctl(fd, request, arg);
	int r = 0;
	if (request == FIONREAD && conn_engaged(c)) {
		*(int *)arg = stream_unread(c, fd);
	} else if (request == SIOCATMARK && conn_engaged(c) && (stream_ready(c, fd, EPOLLIN), c->rx_mode == MODE_LANE)) {
		*(int *)arg = 0; // what lies on the lane comes before it
	} else {
		r = real.ioctl(fd, request, arg);
		int saved = errno;
		if (r == 0 && request == FIONBIO)
			c->nonblock = *(int *)arg != 0;
		if (r == 0 && (request == FIOASYNC || request == FIOSETOWN || request == SIOCSPGRP))
			conn_stay(c, fd, REASON_OPTION); // SIGIO comes from the kernel only
		errno = saved;
	}
	int saved = errno;
	conn_put(c);
	errno = saved;
	return r;
}
