// Threads that open and close connections while another starts processes, or changes its user.
//
//	born fork|exec|vfork|spawn|seteuid SECONDS
//
// Three clients connect to a server of the same process, exchange some blocks, verify them
// and close, again and again. Meanwhile children are made that end at once, or another program,
// or all connections are taken back to TCP now and then.
//
// Exit status: 0 all is well, 1 not (said on stderr).
#include <arpa/inet.h>
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { CLIENTS = 3, ROUNDS = 24, BLOCK = 16 };

extern char **environ;

static struct sockaddr_in at = {.sin_family = AF_INET};
static int listener;
static _Atomic int over;
static _Atomic long connections;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "born: %s: %s\n", what, strerror(errno));
	_exit(1);
}

static void send_all(int fd, const uint32_t *block)
{
	if (write(fd, block, BLOCK * sizeof *block) != BLOCK * sizeof *block)
		die("write");
}

// receive says false at the end of the stream.
static int receive(int fd, uint32_t *block)
{
	ssize_t n = recv(fd, block, BLOCK * sizeof *block, MSG_WAITALL);
	if (n != 0 && n != BLOCK * sizeof *block)
		die("recv");
	return n > 0;
}

static void *echo(void *arg)
{
	int fd = (int)(intptr_t)arg;
	uint32_t block[BLOCK];
	while (receive(fd, block))
		send_all(fd, block);
	close(fd);
	return NULL;
}

static void *serve(void *arg)
{
	for (;;) {
		pthread_t t;
		int fd = accept(listener, NULL, NULL);
		if (fd < 0 || (errno = pthread_create(&t, NULL, echo, (void *)(intptr_t)fd)) != 0)
			die("accept");
		pthread_detach(t);
	}
	return arg;
}

static void *client(void *arg)
{
	uint32_t next = (uint32_t)(intptr_t)arg << 24, sent[BLOCK], got[BLOCK];
	while (!over) {
		int fd = socket(AF_INET, SOCK_STREAM, 0);
		if (fd < 0 || connect(fd, (struct sockaddr *)&at, sizeof at) < 0)
			die("connect");
		for (int i = 0; i < ROUNDS; i++) {
			for (int k = 0; k < BLOCK; k++)
				sent[k] = next++;
			send_all(fd, sent);
			if (!receive(fd, got) || memcmp(sent, got, sizeof sent) != 0) {
				fprintf(stderr, "born: %08x came back as %08x\n", sent[0], got[0]);
				_exit(1);
			}
		}
		close(fd);
		connections++;
	}
	return NULL;
}

static int change_user(void)
{
	struct timespec t = {0, 10 * 1000 * 1000};
	nanosleep(&t, NULL); // connections get lanes meanwhile
	return seteuid(geteuid());
}

static pid_t start(const char *how)
{
	static char *argv[] = {"true", NULL};
	pid_t pid;
	if (strcmp(how, "spawn") == 0) {
		if ((errno = posix_spawnp(&pid, "true", NULL, NULL, argv, environ)) != 0)
			die("posix_spawnp");
		return pid;
	}
	if (strcmp(how, "vfork") == 0) {
		pid = vfork();
		if (pid == 0) {
			execvp("true", argv);
			_exit(1);
		}
		return pid;
	}
	pid = fork();
	if (pid == 0) {
		if (strcmp(how, "exec") == 0)
			execvp("true", argv);
		_exit(strcmp(how, "exec") == 0);
	}
	return pid;
}

int main(int argc, char **argv)
{
	pthread_t t[CLIENTS];
	socklen_t n = sizeof at;
	long started = 0;
	int status;
	if (argc != 3) {
		fprintf(stderr, "usage: born fork|exec|vfork|spawn|seteuid SECONDS\n");
		return 1;
	}
	time_t end = time(NULL) + atoi(argv[2]);
	at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
	listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&at, n) < 0 || listen(listener, 100) < 0 || getsockname(listener, (struct sockaddr *)&at, &n) < 0)
		die("listen");
	if ((errno = pthread_create(&t[0], NULL, serve, NULL)) != 0)
		die("pthread_create");
	for (intptr_t i = 0; i < CLIENTS; i++)
		if ((errno = pthread_create(&t[i], NULL, client, (void *)(i + 1))) != 0)
			die("pthread_create");
	for (; time(NULL) < end; started++) {
		if (strcmp(argv[1], "seteuid") == 0) {
			if (change_user() < 0)
				die("seteuid");
			continue;
		}
		pid_t pid = start(argv[1]);
		if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
			die("child");
	}
	over = 1;
	alarm(60);
	for (int i = 0; i < CLIENTS; i++)
		pthread_join(t[i], NULL);
	printf("%ld connections, %ld processes\n", connections, started);
	return 0;
}
