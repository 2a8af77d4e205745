// leaver: a thread leaves a read that sleeps on a lane by longjmp, uses its stack for other things, and ends.
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 200, TURNS = 5 };

static int fd;
static sigjmp_buf back;
static char byte;

static void leave(int signo) { siglongjmp(back, signo); }

static void check(int ok, const char *what)
{
	if (!ok) {
		perror(what);
		exit(1);
	}
}

static __attribute__((noinline)) int scribble(void)
{
	volatile char stack[16384];
	memset((char *)stack, 0x55, sizeof stack);
	return stack[100];
}

static void *reads(void *with)
{
	if (sigsetjmp(back, 1) == 0) {
		*(volatile int *)with = 1;
		check(read(fd, &byte, 1) == 0, "a read that ends");
	}
	return (void *)(uintptr_t)(scribble() != 0x55);
}

int main(void)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM, 0), status;
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	if (fork() == 0) {
		fd = socket(AF_INET, SOCK_STREAM, 0);
		check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
		for (int i = 0; i < ROUNDS; i++)
			check(write(fd, "x", 1) == 1 && read(fd, &byte, 1) == 1, "exchange");
		check(read(fd, &byte, 1) == 0, "the end");
		exit(0);
	}
	check((fd = accept(l, NULL, NULL)) >= 0, "accept");
	for (int i = 0; i < ROUNDS; i++)
		check(read(fd, &byte, 1) == 1 && write(fd, "x", 1) == 1, "exchange");
	signal(SIGUSR1, leave);
	for (int i = 0; i < TURNS; i++) {
		volatile int begun = 0;
		void *wrong;
		pthread_t t;
		check(pthread_create(&t, NULL, reads, (void *)&begun) == 0, "thread");
		while (!begun)
			usleep(1000);
		usleep(20000); // by now it sleeps
		pthread_kill(t, SIGUSR1);
		pthread_join(t, &wrong);
		check(!wrong, "what the thread saw");
	}
	close(fd);
	check(wait(&status) > 0 && status == 0, "the peer");
	return 0;
}
