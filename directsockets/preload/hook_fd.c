// SPDX-License-Identifier: Apache-2.0
//
// Exported: calls that make, copy and close descriptors.
#include "hook.h"

#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include "config.h"
#include "conn.h"
#include "epset.h"
#include "filemap.h"
#include "files.h"
#include "process.h"
#include "rendezvous.h"
#include "single.h"
#include "sleep.h"
#include "tuple.h"
#include "stream.h"

EXPORT int socket(int domain, int type, int protocol)
{
	HOOK();
	int fd = real.socket(domain, type, protocol);
	if (fd >= 0 && (domain == AF_INET || domain == AF_INET6) &&
	    (type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC)) == SOCK_STREAM && (protocol == 0 || protocol == IPPROTO_TCP)) {
		int saved = errno;
		conn_new(fd, CONN_NEW, type & SOCK_NONBLOCK);
		errno = saved;
	}
	return fd;
}

// connected goes on with a connect that a kick alone has ended, as it has SO_SNDTIMEO.
static int connected(int fd)
{
	uint64_t until = 0;
	int e = 0;
	socklen_t n = sizeof e;
	if (!sleep_ready(&until, fd, POLLOUT))
		e = errno == EAGAIN ? EINPROGRESS : errno;
	else if (real.getsockopt(fd, SOL_SOCKET, SO_ERROR, &e, &n) < 0)
		e = errno;
	errno = e;
	return e ? -1 : 0;
}

EXPORT int connect(int fd, const struct sockaddr *a, socklen_t n)
{
	HOOK();
	struct conn *c = conn_get(fd);
	if (!c)
		return real.connect(fd, a, n);
	if (a && a->sa_family == AF_UNSPEC) {
		conn_stay(c, fd, REASON_OPTION);
		c->known = false; // the next connection has other ends
		c->tuple = (struct tuple){0};
	}
	if (config.require && c->state == CONN_NEW && !rendezvous_possible()) {
		config_say("a connection is refused, for EXN_DS_REQUIRE is set and %s/ds cannot be used", config.fabric);
		conn_put(c);
		errno = ECONNREFUSED;
		return -1;
	}
	struct sleep_since since = sleep_now();
	int before = errno, r = real.connect(fd, a, n);
	if (r < 0 && sleep_disturbed(&since) && (r = connected(fd)) == 0)
		errno = before;
	int saved = errno;
	uint32_t is = CONN_NEW;
	if (c->state == CONN_NEW && (r == 0 || saved == EINPROGRESS || saved == EINTR)) {
		atomic_store_explicit(&c->active, true, memory_order_relaxed);
		c->port = tuple_port(a, n);
		atomic_compare_exchange_strong(&c->state, &is, CONN_COUNTING);
	}
	conn_put(c);
	errno = saved;
	return r;
}
ALSO(__connect, connect);

EXPORT int listen(int fd, int backlog)
{
	HOOK();
	int r = real.listen(fd, backlog);
	struct conn *c = r == 0 ? conn_get(fd) : NULL;
	if (c) {
		uint32_t is = CONN_NEW;
		atomic_compare_exchange_strong(&c->state, &is, CONN_LISTENER);
		conn_put(c);
	}
	return r;
}

static bool is_set(int fd, int option)
{
	int v = 0;
	socklen_t n = sizeof v;
	return real.getsockopt(fd, SOL_SOCKET, option, &v, &n) == 0 && v;
}

// adopted tracks a listener that this program was given: by a service manager, or by
// the program that it was before exec. One of many threads does it.
static struct conn *adopted(int listener)
{
	static pthread_mutex_t one = PTHREAD_MUTEX_INITIALIZER;
	int protocol, saved = errno;
	socklen_t n = sizeof protocol;
	if (real.getsockopt(listener, SOL_SOCKET, SO_PROTOCOL, &protocol, &n) == 0 && protocol == IPPROTO_TCP &&
	    pthread_mutex_trylock(&one) == 0) {
		struct conn *l = files_conn(listener) ? NULL : conn_new(listener, CONN_LISTENER, false);
		if (l)
			l->stamps = is_set(listener, SO_TIMESTAMP) || is_set(listener, SO_TIMESTAMPNS);
		pthread_mutex_unlock(&one);
	}
	errno = saved;
	return files_conn(listener);
}

static int accepted(int listener, int fd, bool nonblock)
{
	struct conn *l = fd >= 0 ? files_conn(listener) : NULL;
	if (fd >= 0 && !l && !config.off)
		l = adopted(listener);
	if (l) {
		int saved = errno;
		struct conn *c = conn_new(fd, l->unlaned ? CONN_OFF : CONN_COUNTING, nonblock);
		if (c && l->unlaned)
			c->reason = REASON_OPTION;
		if (c && l->inq)
			c->inq = true;
		if (c && l->stamps)
			c->stamps = true;
		if (!l->port) { // once for each listener
			struct sockaddr_storage own;
			socklen_t n = sizeof own;
			if (getsockname(listener, (struct sockaddr *)&own, &n) == 0)
				l->port = tuple_port((struct sockaddr *)&own, n);
		}
		if (c)
			c->port = l->port;
		errno = saved;
	}
	return fd;
}

EXPORT int accept(int fd, struct sockaddr *a, socklen_t *n)
{
	HOOK();
	return accepted(fd, (int)UNKICKED(fd, POLLIN, real.accept(fd, a, n)), false);
}

EXPORT int accept4(int fd, struct sockaddr *a, socklen_t *n, int flags)
{
	HOOK();
	return accepted(fd, (int)UNKICKED(fd, POLLIN, real.accept4(fd, a, n, flags)), flags & SOCK_NONBLOCK);
}

EXPORT int shutdown(int fd, int how)
{
	HOOK();
	struct conn *c = conn_get(fd);
	if (!c)
		return real.shutdown(fd, how);
	bool lane = conn_enter(c, fd);
	int r = lane ? stream_shutdown(c, fd, how) : real.shutdown(fd, how);
	int saved = errno;
	if (!lane && r == 0 && how != SHUT_WR)
		c->rx_shut = true; // it may come to a lane yet
	conn_put(c);
	errno = saved;
	return r;
}

EXPORT int close(int fd)
{
	HOOK();
	if ((unsigned)fd < FILES_MAX && files_table[fd]) {
		if (files_ours(fd)) {
			errno = EBADF;
			return -1;
		}
		if (files_epset(fd))
			epset_close(fd);
		else
			conn_close(fd, false);
	}
	filemap_close(fd);
	return real.close(fd);
}
ALSO(__close, close);

static void forget(int fd)
{
	if (files_conn(fd))
		conn_close(fd, false);
	else if (files_epset(fd))
		epset_close(fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
	HOOK();
	if (flags & CLOSE_RANGE_UNSHARE && !single_thread()) {
		process_confine(REASON_SHARED);
		return real.close_range(first, last, flags);
	}
	if (!(flags & ~CLOSE_RANGE_UNSHARE))
		filemap_forget(first, last);
	if (flags & ~CLOSE_RANGE_UNSHARE || first > last || first >= FILES_MAX)
		return real.close_range(first, last, flags);
	for (unsigned fd = first; fd < (unsigned)files_top() && fd <= last; fd++)
		forget((int)fd);
	unsigned from = first;
	for (unsigned ours; from < FILES_MAX && (ours = (unsigned)files_ours_from((int)from)) <= last && ours < FILES_MAX; from = ours + 1) {
		if (from < ours)
			real.close_range(from, ours - 1, flags);
	}
	return from <= last ? real.close_range(from, last, flags) : 0;
}

EXPORT void closefrom(int first) { close_range(first < 0 ? 0 : (unsigned)first, ~0u, 0); }

static int duped(int from, int to)
{
	if (to >= 0 && (unsigned)from < FILES_MAX && files_table[from]) {
		int saved = errno;
		if (files_conn(from)) {
			conn_dup(from, to);
			if (to <= STDERR_FILENO)
				hook_leave(to, REASON_STDIO); // stdin, stdout and stderr read and write it past us
		} else if (files_epset(from))
			epset_dup(from, to);
		errno = saved;
	}
	return to;
}

EXPORT int dup(int fd)
{
	HOOK();
	return duped(fd, real.dup(fd));
}

// replaced closes what the target of dup2 was, if the call can succeed.
static bool replaced(int from, int to)
{
	if (files_ours(to) || files_ours(from)) {
		errno = EBADF;
		return false;
	}
	if (from != to && (unsigned)to < FILES_MAX && files_table[to]) {
		int saved = errno;
		if (real.fcntl(from, F_GETFD) >= 0)
			forget(to);
		errno = saved;
	}
	if (from != to)
		filemap_close(to);
	return true;
}

EXPORT int dup2(int from, int to)
{
	HOOK();
	if (!replaced(from, to))
		return -1;
	int r = real.dup2(from, to);
	return from == to ? r : duped(from, r);
}
ALSO(__dup2, dup2);

EXPORT int dup3(int from, int to, int flags)
{
	HOOK();
	if (from != to && !(flags & ~O_CLOEXEC) && !replaced(from, to))
		return -1;
	return duped(from, real.dup3(from, to, flags));
}

static int control(int fd, int cmd, void *arg)
{
	int r = real.fcntl(fd, cmd, arg);
	if (r < 0)
		return r;
	if (cmd == F_DUPFD || cmd == F_DUPFD_CLOEXEC)
		return duped(fd, r);
	struct conn *c = cmd == F_SETFL || cmd == F_SETOWN || cmd == F_SETOWN_EX || cmd == F_SETSIG ? conn_get(fd) : NULL;
	if (c) {
		if (cmd == F_SETFL)
			atomic_store_explicit(&c->nonblock, (intptr_t)arg & O_NONBLOCK, memory_order_relaxed);
		if (cmd != F_SETFL || (intptr_t)arg & O_ASYNC)
			conn_stay(c, fd, REASON_OPTION); // SIGIO comes from the kernel only
		conn_put(c);
	}
	return r;
}

#define CONTROL(name) \
	EXPORT int name(int fd, int cmd, ...) \
	{ \
		va_list ap; \
		HOOK(); \
		va_start(ap, cmd); \
		void *arg = va_arg(ap, void *); \
		va_end(ap); \
		return control(fd, cmd, arg); \
	}
CONTROL(fcntl)
ALSO(__fcntl, fcntl);
CONTROL(fcntl64)
