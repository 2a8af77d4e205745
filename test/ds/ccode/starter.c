// SPDX-License-Identifier: Apache-2.0
//
// starter USR1|FPE: handlers of a thread that reads from a connection all the time start programs and wait
// for them. That of SIGFPE may interrupt it while it has the connection's lock, for which nobody may wait long.
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HANDLERS = 30, BLOCK = 1 << 18 };

static volatile sig_atomic_t ran;
static int by;
static char b[BLOCK];

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void handler(int signo)
{
	(void)signo;
	int saved = errno;
	pid_t pid = fork();
	if (pid == 0) {
		execl("/bin/true", "true", (char *)NULL);
		_exit(1);
	}
	waitpid(pid, NULL, 0);
	ran++;
	errno = saved;
}

static void *interrupts(void *thread)
{
	while (ran < HANDLERS) {
		usleep(3000);
		pthread_kill(*(pthread_t *)thread, by);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	by = argc > 1 && strcmp(argv[1], "FPE") == 0 ? SIGFPE : SIGUSR1;
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	pid_t peer = fork();
	if (peer == 0) {
		int s = socket(AF_INET, SOCK_STREAM, 0);
		signal(SIGPIPE, SIG_IGN);
		check(connect(s, (struct sockaddr *)&a, n) == 0, "connect");
		while (write(s, b, sizeof b) > 0)
			;
		_exit(0);
	}
	int s = accept(l, NULL, NULL);
	check(s >= 0, "accept");
	pthread_t self = pthread_self(), other;
	sigaction(by, &(struct sigaction){.sa_handler = handler, .sa_flags = SA_RESTART}, NULL);
	check(pthread_create(&other, NULL, interrupts, &self) == 0, "pthread_create");
	while (ran < HANDLERS)
		check(recv(s, b, sizeof b, 0) > 0, "recv");
	pthread_join(other, NULL);
	close(s);
	waitpid(peer, NULL, 0);
	return 0;
}
