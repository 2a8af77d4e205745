// SPDX-License-Identifier: Apache-2.0
//
// broken.c is a preloaded library that breaks one promise of TCP, named by
// DS_BROKEN. The test of scripts must notice each: it shows that the
// comparison would notice the like in the real library.
#include <dlfcn.h>
#include <errno.h>
#include <poll.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <unistd.h>

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static bool broken(const char *what)
{
	const char *env = getenv("DS_BROKEN");
	return env && strcmp(env, what) == 0;
}

static bool is_socket(int fd)
{
	int type;
	socklen_t n = sizeof type;
	int saved = errno;
	bool yes = getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &type, &n) == 0 && type != AF_UNIX;
	errno = saved;
	return yes;
}

static ssize_t after_read(int fd, void *p, ssize_t r)
{
	if (!is_socket(fd))
		return r;
	if (r > 0 && broken("flipped-bit"))
		((char *)p)[r - 1] ^= 0x10;
	if (r > 0 && broken("lost-byte"))
		memmove(p, (char *)p + 1, (size_t)--r);
	if (r < 0 && errno == ECONNRESET && broken("reset-is-end"))
		return 0;
	if (r == 0 && broken("end-is-reset")) {
		errno = ECONNRESET;
		return -1;
	}
	if (r < 0 && errno == EAGAIN && broken("again-is-end"))
		return 0;
	return r;
}

ssize_t read(int fd, void *p, size_t n)
{
	if (n > 100 && broken("short-read") && is_socket(fd))
		n = 100;
	ssize_t r;
	do
		r = REAL(read)(fd, p, n);
	while (r < 0 && errno == EINTR && broken("hides-interrupts") && is_socket(fd));
	return after_read(fd, p, r);
}

ssize_t recv(int fd, void *p, size_t n, int flags)
{
	if (broken("peek-takes"))
		flags &= ~MSG_PEEK;
	if (broken("waitall-ignored"))
		flags &= ~MSG_WAITALL;
	if (broken("trunc-ignored"))
		flags &= ~MSG_TRUNC;
	return after_read(fd, p, REAL(recv)(fd, p, n, flags));
}

ssize_t write(int fd, const void *p, size_t n)
{
	if (!is_socket(fd))
		return REAL(write)(fd, p, n);
	ssize_t r = send(fd, p, n, broken("no-signal") ? MSG_NOSIGNAL : 0);
	if (r < 0 && errno == EPIPE && broken("pipe-is-reset"))
		errno = ECONNRESET;
	return r;
}

ssize_t sendfile(int out, int in, off_t *at, size_t n)
{
	off_t from = at ? *at : 0;
	ssize_t r = REAL(sendfile)(out, in, at, n);
	if (at && broken("sendfile-offset"))
		*at = from;
	return r;
}

int poll(struct pollfd *p, nfds_t n, int timeout)
{
	int r = REAL(poll)(p, n, broken("spurious") ? 0 : timeout);
	for (nfds_t i = 0; i < n; i++) {
		if (broken("no-rdhup"))
			p[i].revents &= ~POLLRDHUP;
		if (broken("no-hup"))
			p[i].revents &= ~POLLHUP;
		if (r == 0 && p[i].events & POLLIN && broken("spurious")) {
			p[i].revents = POLLIN;
			return 1;
		}
	}
	return r;
}

int epoll_ctl(int set, int op, int fd, struct epoll_event *e)
{
	struct epoll_event copy = e ? *e : (struct epoll_event){0};
	if (broken("edge-is-level"))
		copy.events &= ~(unsigned)EPOLLET;
	if (broken("level-is-edge"))
		copy.events |= EPOLLET;
	if (broken("oneshot-stays"))
		copy.events &= ~(unsigned)EPOLLONESHOT;
	if (broken("data-halved"))
		copy.data.u64 = copy.data.u32;
	if (broken("mod-ignored") && op == EPOLL_CTL_MOD)
		return 0;
	return REAL(epoll_ctl)(set, op, fd, &copy);
}

int setsockopt(int fd, int level, int option, const void *p, socklen_t n)
{
	if (level == SOL_SOCKET && ((option == SO_RCVLOWAT && broken("lowat-ignored")) ||
		(option == SO_LINGER && broken("linger-ignored"))))
		return 0;
	return REAL(setsockopt)(fd, level, option, p, n);
}

int ioctl(int fd, unsigned long request, ...)
{
	va_list ap;
	va_start(ap, request);
	void *p = va_arg(ap, void *);
	va_end(ap);
	int r = REAL(ioctl)(fd, request, p);
	if (request == FIONREAD && broken("fionread-page"))
		*(int *)p = *(int *)p > 4096 ? 4096 : *(int *)p;
	return r;
}

int close(int fd)
{
	if (broken("close-is-shutdown") && is_socket(fd))
		shutdown(fd, SHUT_RDWR);
	return REAL(close)(fd);
}

int shutdown(int fd, int how)
{
	if (broken("no-half-close"))
		how = SHUT_RDWR;
	return REAL(shutdown)(fd, how);
}
