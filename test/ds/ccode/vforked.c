// SPDX-License-Identifier: Apache-2.0
//
// What the child of a vfork does with the memory of its parent must not change what the
// library knows of that. A process without connections, so that vfork is one (vfork says
// "borrows", or "copies" where it ran as fork):
//
//	vforked quiet [TRUE]  has had an epoll set and a connection, and closed them
//	vforked busy [TRUE]   has a listener: "copies"
//	vforked joined [TRUE]  has had another thread
//	vforked threads [TRUE] has another thread: "copies"
//
// In the child: other handlers, new sockets under the numbers that the parent uses next, all
// descriptors closed, another user; then _exit, a failing exec, or exec of TRUE. After each the parent
// must find its handler, a file where the child had a socket, a connection that works, and not one
// descriptor more.
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static volatile int memory, parents, children;

static void of_parent(int signo) { parents += signo == SIGUSR1; }
static void of_child(int signo) { children += signo == SIGUSR1; }

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "vforked: %s: %s\n", what, strerror(errno));
	_exit(1);
}

// talk makes a connection to itself and sends enough for a lane.
static void talk(void)
{
	struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof at;
	char b[64];
	int l = socket(AF_INET, SOCK_STREAM, 0), c = socket(AF_INET, SOCK_STREAM, 0), s;
	if (bind(l, (struct sockaddr *)&at, n) < 0 || listen(l, 1) < 0 || getsockname(l, (struct sockaddr *)&at, &n) < 0 ||
	    connect(c, (struct sockaddr *)&at, n) < 0 || (s = accept(l, NULL, NULL)) < 0)
		die("connect");
	for (int i = 0; i < 200; i++) {
		memset(b, i, sizeof b);
		if (send(c, b, sizeof b, 0) != sizeof b || recv(s, b, sizeof b, MSG_WAITALL) != sizeof b || b[63] != (char)i)
			die("bytes of a connection");
		if (send(s, b, sizeof b, 0) != sizeof b || recv(c, b, sizeof b, MSG_WAITALL) != sizeof b || b[0] != (char)i)
			die("bytes back");
	}
	if (close(epoll_create1(EPOLL_CLOEXEC)) < 0 || close(c) < 0 || close(s) < 0 || close(l) < 0)
		die("close");
}

static void play(int how, char *program)
{
	struct sigaction a = {.sa_handler = of_child, .sa_flags = SA_RESTART};
	char *argv[] = {program, NULL}, *none[] = {"/nonexistent", NULL};
	int status;
	pid_t pid = vfork();
	if (pid == 0) {
		memory++;
		sigaction(SIGUSR1, &a, NULL);
		socket(AF_INET, SOCK_STREAM, 0);
		epoll_create1(0);
		if (how % 2)
			dup2(socket(AF_INET, SOCK_STREAM, 0), 9);
		else
			close_range(3, ~0u, 0);
		if (how == 3 && setuid(getuid()) < 0)
			_exit(1);
		if (how == 1)
			execv(none[0], none);
		if (how == 2)
			execv(program, argv);
		_exit(how == 2);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0)
		die("child");
	raise(SIGUSR1);
	// Where the child had its socket and its epoll set there are a file and a pipe now, until the next child.
	for (int fd = 3; fd < 6; fd++)
		close(fd);
	int zero = open("/dev/zero", O_RDONLY), pipes[2];
	char b[4] = "abc";
	if (zero < 0 || read(zero, b, sizeof b) != sizeof b || b[0] || pipe(pipes) < 0 || write(pipes[1], "x", 1) != 1 ||
	    read(pipes[0], b, 4) != 1 || b[0] != 'x')
		die("files after the child");
}

static int descriptors(void)
{
	int n = 0;
	DIR *d = opendir("/proc/self/fd");
	while (d && readdir(d))
		n++;
	closedir(d);
	return n;
}

static void *ends(void *arg) { return arg; }

static void *sleeper(void *arg)
{
	for (;;)
		pause();
	return arg;
}

int main(int argc, char **argv)
{
	pthread_t t;
	struct stat tasks;
	struct sigaction a = {.sa_handler = of_parent};
	char *mode = argc > 1 ? argv[1] : "", *program = argc > 2 ? argv[2] : "/bin/true";
	int listener, before = 0;
	if (sigaction(SIGUSR1, &a, NULL) < 0)
		die("sigaction");
	talk();
	for (int fd = 3; fd < 6; fd++)
		if (dup(0) != fd) // play closes these
			die("dup");
	if (strcmp(mode, "busy") == 0 && ((listener = socket(AF_INET, SOCK_STREAM, 0)) < 0 || listen(listener, 1) < 0))
		die("listen");
	if (strcmp(mode, "joined") == 0 && (pthread_create(&t, NULL, ends, NULL) != 0 || pthread_join(t, NULL) != 0))
		die("pthread_create");
	while (strcmp(mode, "joined") == 0 && stat("/proc/self/task", &tasks) == 0 && tasks.st_nlink > 3)
		usleep(100); // the kernel may not be done with it
	if (strcmp(mode, "threads") == 0 && pthread_create(&t, NULL, sleeper, NULL) != 0)
		die("pthread_create");
	for (int i = 0; i < 20; i++) {
		play(i % 4, program);
		if (i % 4 == 3) {
			talk();
			if (parents != i + 1 || children != 0)
				die("the child's handler ran");
			before = before ? before : descriptors();
			if (descriptors() != before)
				die("more descriptors, or less");
		}
	}
	printf("%s\n", memory == 20 ? "borrows" : memory == 0 ? "copies" : "both");
	return 0;
}
