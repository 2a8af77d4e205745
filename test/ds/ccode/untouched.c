// Two processes exchange bytes by all ways, with pauses in which both fall asleep. Calls
// that succeed leave errno as it is, as they do on TCP; some programs look at it after them.
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MARK = 4242, ROUNDS = 1500, PAUSE_EVERY = 300, LARGE = 200000 };

static int wrong;

// checked sets errno before a call and looks at it afterwards.
#define checked(call) ({ errno = MARK; long r_ = (long)(call); check(#call, r_); r_; })

static void check(const char *call, long r)
{
	if (r >= 0 && errno == MARK)
		return;
	if (r < 0 || wrong++ < 9)
		printf("%s: %ld, %s\n", call, r, strerrorname_np(errno));
	if (r < 0) {
		fflush(stdout);
		_exit(1);
	}
}

static char bytes[LARGE];

static void take(int fd, size_t n)
{
	while (n > 0) {
		long r = n % 3 ? checked(read(fd, bytes, n)) : checked(recv(fd, bytes, n, 0));
		if (r == 0)
			_exit(1);
		n -= (size_t)r;
	}
}

static void give(int fd, size_t n)
{
	struct iovec v = {bytes, n};
	struct msghdr h = {.msg_iov = &v, .msg_iovlen = 1};
	while (v.iov_len > 0)
		v.iov_len -= (size_t)(n % 3 ? checked(write(fd, bytes, v.iov_len)) : checked(sendmsg(fd, &h, 0)));
}

static void await(int fd, int set, int way)
{
	struct pollfd p = {fd, POLLIN, 0};
	struct epoll_event e;
	fd_set s;
	FD_ZERO(&s);
	FD_SET(fd, &s);
	switch (way) {
	case 0:
		checked(poll(&p, 1, -1));
		break;
	case 1:
		checked(epoll_wait(set, &e, 1, -1));
		break;
	case 2:
		checked(select(fd + 1, &s, NULL, NULL, NULL));
		break;
	}
}

static void talk(int fd, int first)
{
	struct epoll_event e = {.events = EPOLLIN};
	int set = epoll_create1(0);
	checked(epoll_ctl(set, EPOLL_CTL_ADD, fd, &e));
	for (int i = 0; i < ROUNDS; i++) {
		size_t n = i % 7 ? 64 : LARGE;
		if (i % PAUSE_EVERY == 0)
			usleep(300000);
		if (first)
			give(fd, n);
		await(fd, set, i % 4);
		take(fd, n);
		if (!first)
			give(fd, n);
	}
	checked(shutdown(fd, SHUT_WR));
	checked(read(fd, bytes, 1));
	checked(close(fd));
	checked(close(set));
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof a;
	int listener = socket(AF_INET, SOCK_STREAM, 0), status;
	if (bind(listener, (struct sockaddr *)&a, n) < 0 || listen(listener, 1) < 0 || getsockname(listener, (struct sockaddr *)&a, &n) < 0)
		return 1;
	pid_t child = fork();
	if (child == 0) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		checked(connect(fd, (struct sockaddr *)&a, n));
		talk(fd, 1);
	} else {
		talk((int)checked(accept(listener, NULL, NULL)), 0);
		if (waitpid(child, &status, 0) != child || status != 0)
			return 1;
	}
	return wrong > 0;
}
