// SPDX-License-Identifier: Apache-2.0
//
// copied: descriptors of the library's own (files.h), which threads make and close at the same
// time, leave the program's limit alone, and copies of the program's are not a child's.
//
// Exit status: 0 all is well, 1 not (said on stderr).
#include "real.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "files.h"

enum { THREADS = 4, ROUNDS = 3000, LIMIT = 256 };

static int fd;

static void *copy(void *failed)
{
	for (int i = 0; i < ROUNDS; i++) {
		int c = files_copy(fd);
		if (c < LIMIT)
			++*(int *)failed;
		files_close(c);
	}
	return NULL;
}

int main(void)
{
	struct rlimit l;
	pthread_t t[THREADS];
	int failed[THREADS] = {0}, wrong = 0, status = -1;
	getrlimit(RLIMIT_NOFILE, &l);
	l.rlim_cur = LIMIT;
	if (setrlimit(RLIMIT_NOFILE, &l) < 0 || (fd = socket(AF_INET, SOCK_STREAM, 0)) < 0)
		return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, copy, &failed[i]);
	for (int i = 0; i < THREADS; i++) {
		pthread_join(t[i], NULL);
		if (failed[i] > 0) {
			fprintf(stderr, "copied: a thread got no descriptor above the limit %d times of %d\n", failed[i], ROUNDS);
			wrong = 1;
		}
	}
	getrlimit(RLIMIT_NOFILE, &l);
	if (l.rlim_cur != LIMIT) {
		fprintf(stderr, "copied: the limit is %llu now\n", (unsigned long long)l.rlim_cur);
		wrong = 1;
	}
	int c = files_copy(fd);
	pid_t pid = fork();
	if (pid == 0)
		_exit(real.fcntl(c, F_GETFD) >= 0 || errno != EBADF || real.fcntl(fd, F_GETFD) < 0);
	if (pid < 0 || waitpid(pid, &status, 0) != pid || status != 0 || real.fcntl(c, F_GETFD) < 0) {
		fprintf(stderr, "copied: a child has the copy, or its parent has it no more\n");
		wrong = 1;
	}
	return wrong;
}
