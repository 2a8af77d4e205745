// SPDX-License-Identifier: Apache-2.0
//
// Every way to sleep, or to wait for another in the middle of a call, for passed.c.
#ifndef SLEEPS_H
#define SLEEPS_H

#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/select.h>
#include <sys/sem.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <threads.h>
#include <time.h>
#include <unistd.h>

static void none(int signo) { (void)signo; }

// late moves much, half of it after so many nanoseconds, at the other end of what somebody uses.
enum { MUCH = 1 << 20 };
struct late {
	int fd;
	long ns;
	bool fills;
};

static void *late(void *arg)
{
	static char half[MUCH / 2];
	struct late *l = arg;
	size_t left = l->fills ? sizeof half : 0;
	for (int i = 0; i < 2; i++) {
		while (left > 0) {
			ssize_t n = l->fills ? write(l->fd, half, left) : read(l->fd, half, left < sizeof half ? left : sizeof half);
			check(n > 0, "the other end");
			left -= (size_t)n;
		}
		if (i == 0)
			nanosleep(&(struct timespec){0, l->ns}, NULL);
		left = l->fills ? sizeof half : MUCH;
	}
	return NULL;
}

// move moves so much at once by one of several ways.
static ssize_t move(int way, int fd)
{
	static char much[MUCH];
	struct iovec iov[3] = {{much, 1000}, {NULL, 0}, {much + 1000, MUCH - 1000}};
	struct msghdr h = {.msg_iov = iov, .msg_iovlen = 3};
	int file;
	ssize_t n;
	switch (way) {
	case 0:
	case 1:
		return write(fd, much, MUCH);
	case 2:
		return writev(fd, iov, 3);
	case 3:
		return send(fd, much, MUCH, 0);
	case 4:
		return sendto(fd, much, MUCH, 0, NULL, 0);
	case 5:
		return sendmsg(fd, &h, 0);
	case 6:
		check((file = memfd_create("much", 0)) >= 0 && write(file, much, MUCH) == MUCH && lseek(file, 0, SEEK_SET) == 0, "a file");
		n = sendfile(fd, file, NULL, MUCH);
		check(close(file) == 0, "close");
		return n;
	case 7:
		return recv(fd, much, MUCH, MSG_WAITALL);
	case 8:
		return recvfrom(fd, much, MUCH, MSG_WAITALL, NULL, NULL);
	case 9:
		return recvmsg(fd, &h, MSG_WAITALL);
	}
	return -1;
}

static void move_all(int way, long ns)
{
	int p[2];
	pthread_t t;
	check((way == 0 ? pipe(p) : socketpair(AF_UNIX, SOCK_STREAM, 0, p)) == 0, "two ends");
	struct late l = {p[0], ns, way >= 7};
	check(pthread_create(&t, NULL, late, &l) == 0, "a thread");
	check(move(way, p[1]) == MUCH, "all at once");
	check(pthread_join(t, NULL) == 0 && close(p[0]) == 0 && close(p[1]) == 0, "the end");
}

// sleeps sleeps by one of several ways for so many nanoseconds; false: there are no more.
static int sleeps_by(int way, long ns)
{
	struct timespec t = {0, ns}, now;
	struct timeval tv = {0, ns / 1000};
	struct itimerval timer = {tv, tv}, once = {{0}, tv}, never = {0}; // again and again: it may come before we sleep
	sigset_t empty, was;
	fd_set x;
	int p[2];
	sem_t sem;
	struct mmsghdr one = {{.msg_iov = &(struct iovec){byte_of, 1}, .msg_iovlen = 1}, 0};
	struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	struct sembuf take = {0, -1, 0};
	struct {
		long type;
		char text[8];
	} message;
	sigemptyset(&empty);
	switch (way) {
	case 0:
		check(nanosleep(&t, NULL) == 0, "nanosleep");
		return 1;
	case 1:
		check(clock_nanosleep(CLOCK_MONOTONIC, 0, &t, NULL) == 0, "clock_nanosleep");
		return 1;
	case 2:
		clock_gettime(CLOCK_REALTIME, &now);
		t.tv_sec = now.tv_sec + (now.tv_nsec + ns) / 1000000000;
		t.tv_nsec = (now.tv_nsec + ns) % 1000000000;
		check(clock_nanosleep(CLOCK_REALTIME, TIMER_ABSTIME, &t, NULL) == 0, "clock_nanosleep until");
		return 1;
	case 3:
		check(usleep((useconds_t)(ns / 1000)) == 0, "usleep");
		return 1;
	case 4:
		check(sleep(1) == 0, "sleep");
		return 1;
	case 5:
		check(poll(NULL, 0, (int)(ns / 1000000)) == 0, "poll");
		return 1;
	case 6:
		check(select(0, NULL, NULL, NULL, &tv) == 0, "select");
		return 1;
	case 7:
	case 8:
	case 9:
	case 10:
		signal(SIGALRM, none);
		setitimer(ITIMER_REAL, &timer, NULL);
		check((way == 7 ? pause() : way == 8 ? sigsuspend(&empty) : nanosleep(&(struct timespec){way == 9 ? 10 : INT64_MAX, 0}, &t)) == -1 && errno == EINTR, "a signal");
		check(way != 9 || (t.tv_sec == 9 && t.tv_nsec <= 1000000000 - ns / 2), "what is left"); // the timer began before
		check(way < 10 || t.tv_sec > 0, "what is left of for ever");
		setitimer(ITIMER_REAL, &never, NULL);
		alarm(TIME); // which is the same timer
		return 1;
	case 11: // which is no exception
		FD_ZERO(&x);
		check(pipe(p) == 0 && close(p[1]) == 0, "a pipe");
		FD_SET(p[0], &x);
		check(select(p[0] + 1, NULL, NULL, &x, &tv) == 0 && close(p[0]) == 0, "select");
		return 1;
	case 12:
		check(thrd_sleep(&t, NULL) == 0, "thrd_sleep");
		return 1;
	case 13:
	case 14:
	case 15:
		check((p[0] = socket(AF_INET, way == 15 ? SOCK_STREAM : SOCK_DGRAM, 0)) >= 0, "a socket");
		check(setsockopt(p[0], SOL_SOCKET, SO_RCVTIMEO, &tv, sizeof tv) == 0 && bind(p[0], (struct sockaddr *)&here, sizeof here) == 0, "its time");
		check(way < 15 || listen(p[0], 1) == 0, "listen");
		check((way == 13 ? recv(p[0], byte_of, 1, 0) : way == 14 ? read(p[0], byte_of, 1) : accept(p[0], NULL, NULL)) == -1 && errno == EAGAIN && close(p[0]) == 0, "a read with a timeout");
		return 1;
	case 16:
	case 17:
		sigaddset(&empty, way == 16 ? SIGUSR1 : SIGALRM);
		check(sigprocmask(SIG_BLOCK, &empty, &was) == 0, "mask");
		setitimer(ITIMER_REAL, way == 16 ? &never : &once, NULL);
		check(way == 16 ? sigtimedwait(&empty, NULL, &t) == -1 && errno == EAGAIN : sigwaitinfo(&empty, NULL) == SIGALRM, "a wait for a signal");
		check(sigprocmask(SIG_SETMASK, &was, NULL) == 0, "mask");
		alarm(TIME);
		return 1;
	case 18:
	case 19:
		check((p[0] = semget(IPC_PRIVATE, 1, 0600)) >= 0, "a semaphore");
		signal(SIGALRM, none);
		if (way == 19)
			setitimer(ITIMER_REAL, &timer, NULL);
		check((way == 18 ? semtimedop(p[0], &take, 1, &t) : semop(p[0], &take, 1)) == -1 && errno == (way == 18 ? EAGAIN : EINTR), "semop");
		setitimer(ITIMER_REAL, &never, NULL);
		alarm(TIME);
		check(semctl(p[0], 0, IPC_RMID) == 0, "rid of the semaphore");
		return 1;
	case 20:
		check((p[0] = msgget(IPC_PRIVATE, 0600)) >= 0, "a queue");
		signal(SIGALRM, none);
		setitimer(ITIMER_REAL, &timer, NULL);
		check(msgrcv(p[0], &message, sizeof message.text, 0, 0) == -1 && errno == EINTR, "msgrcv");
		setitimer(ITIMER_REAL, &never, NULL);
		alarm(TIME);
		check(msgctl(p[0], IPC_RMID, NULL) == 0, "rid of the queue");
		return 1;
	case 21:
	case 22: // the peer's signal, too, which it is not to tell of
		sigfillset(&empty);
		check(sigprocmask(SIG_BLOCK, &empty, &was) == 0, "mask");
		setitimer(ITIMER_REAL, &once, NULL);
		check(way == 21 ? sigwait(&empty, &p[0]) == 0 && p[0] == SIGALRM : sigwaitinfo(&empty, NULL) == SIGALRM, "a wait for any signal");
		check(sigprocmask(SIG_SETMASK, &was, NULL) == 0, "mask");
		alarm(TIME);
		return 1;
	case 23:
	case 24:
		clock_gettime(way == 23 ? CLOCK_REALTIME : CLOCK_MONOTONIC, &now);
		t.tv_sec = now.tv_sec + (now.tv_nsec + ns) / 1000000000;
		t.tv_nsec = (now.tv_nsec + ns) % 1000000000;
		check(sem_init(&sem, 0, 0) == 0, "a semaphore");
		check((way == 23 ? sem_timedwait(&sem, &t) : sem_clockwait(&sem, CLOCK_MONOTONIC, &t)) == -1 && errno == ETIMEDOUT, "a wait for a semaphore");
		return 1;
	case 25:
		check(socketpair(AF_UNIX, SOCK_DGRAM, 0, p) == 0 && setsockopt(p[0], SOL_SOCKET, SO_SNDTIMEO, &tv, sizeof tv) == 0, "a socket");
		while (send(p[0], byte_of, 1, MSG_DONTWAIT) == 1)
			;
		check(sendmmsg(p[0], &one, 1, 0) == -1 && errno == EAGAIN && close(p[0]) == 0 && close(p[1]) == 0, "sendmmsg");
		return 1;
	}
	if (way >= 36)
		return 0;
	move_all(way - 26, ns);
	return 1;
}

#endif
