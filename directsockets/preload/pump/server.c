// The server: one kind of connection at a time, or of streams and of crowds any number.
#define _GNU_SOURCE
#include "pump.h"

#include <errno.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

struct served {
	int fd;
	struct hello hello;
};

static void serve_stream(struct served s)
{
	size_t memory = s.hello.rounds, room = s.hello.size > CHUNK || memory ? s.hello.size : CHUNK;
	char *buffer = malloc(memory ? memory : room);
	struct answer a = {0};
	uint64_t before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
	ssize_t n;
	if (!buffer)
		fail("memory");
	for (int warm = !memory;;) {
		uint64_t at = memory ? a.bytes % memory : 0; // writes are read as they were written
		size_t most = room - at % room;
		n = read(s.fd, buffer + at, with.part && with.part < most ? with.part : most);
		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			break;
		if (with.think > 0)
			for (uint64_t end = now() + (uint64_t)(with.think * 1e3); now() < end;)
				;
		a.wrong += (uint64_t)differs(buffer + at, (size_t)n, memory ? at : a.bytes, s.hello.check != 0);
		a.bytes += (uint64_t)n;
		if (!warm && a.bytes >= WARM) {
			warm = 1;
			before = clock_ns(CLOCK_THREAD_CPUTIME_ID);
		}
	}
	a.cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID) - before;
	if (n == 0)
		put(s.fd, &a, sizeof a);
	free(buffer);
	close(s.fd);
}

static void *stream_thread(void *arg)
{
	struct served s = *(struct served *)arg;
	free(arg);
	serve_stream(s);
	return NULL;
}

static void serve_messages(struct served s)
{
	static char buffer[LARGEST];
	for (uint64_t i = 0; (s.hello.rounds == 0 || i < s.hello.rounds) && all(s.fd, buffer, s.hello.size); i++)
		if (!put(s.fd, buffer, s.hello.size))
			break;
	close(s.fd); // of mode c the server is the first: the client's ports are free at once
}

// accepted is the next connection and what its client wants.
static struct served accepted(int listener)
{
	for (;;) {
		struct served s = {.fd = accept(listener, NULL, NULL)};
		if (s.fd < 0 && (errno == EINTR || errno == ECONNABORTED))
			continue;
		if (s.fd < 0)
			fail("accept");
		no_delay(s.fd);
		if (all(s.fd, &s.hello, sizeof s.hello) &&
		    fits(s.hello.size, s.hello.mode == 's' || s.hello.mode == 'n' ? s.hello.rounds : 0))
			return s;
		close(s.fd);
	}
}

static void watch(int set, int fd)
{
	struct epoll_event e = {.events = EPOLLIN, .data.fd = fd};
	if (epoll_ctl(set, EPOLL_CTL_ADD, fd, &e) < 0)
		fail("epoll_ctl");
}

// serve_crowd answers on any number of connections, from now on all there are.
static void serve_crowd(int listener, struct served first)
{
	static char buffer[LARGEST];
	struct epoll_event ready[BUSY];
	int set = epoll_create1(EPOLL_CLOEXEC);
	if (set < 0)
		fail("epoll");
	watch(set, listener);
	watch(set, first.fd);
	for (;;) {
		int n = epoll_wait(set, ready, BUSY, -1);
		for (int i = 0; i < n; i++) {
			int fd = ready[i].data.fd;
			if (fd == listener)
				watch(set, accepted(listener).fd);
			else if (!all(fd, buffer, first.hello.size) || !put(fd, buffer, first.hello.size))
				close(fd);
		}
	}
}

void serve(int listener)
{
	for (;;) {
		struct served s = accepted(listener);
		if (s.hello.mode == 'e') {
			serve_crowd(listener, s);
		} else if (s.hello.mode == 'n') { // one of several streams
			pthread_t thread;
			struct served *copy = malloc(sizeof s);
			if (!copy)
				fail("memory");
			*copy = s;
			if (pthread_create(&thread, NULL, stream_thread, copy) != 0)
				fail("thread");
			pthread_detach(thread);
		} else if (s.hello.mode == 's') {
			serve_stream(s);
		} else {
			serve_messages(s);
		}
	}
}
