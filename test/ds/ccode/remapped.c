// SPDX-License-Identifier: Apache-2.0
//
// Threads that read a file as sendfile does, by its map, while another one closes its descriptor
// and has it be of another file, again and again:
//
//	remapped DIR
//
// It is linked with the library. Each file has one byte only, so what is read is all of one. Exit status: 0, or 1.
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "filemap.h"
#include "real.h"

enum { FILES = 3, READERS = 3, SIZE = 20000, ROUNDS = 500 };

static int file[FILES], fd;
static _Atomic int over;
static _Atomic unsigned mapped;

static void check(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

static void *reader(void *none)
{
	char bytes[SIZE];
	while (!over) {
		struct filemap *m = filemap_take(fd, SIZE);
		ssize_t n = filemap_read(m, fd, bytes, SIZE, 0);
		filemap_give(m);
		check(n == SIZE && memcmp(bytes, bytes + 1, SIZE - 1) == 0, "bytes of two files");
		if (m)
			mapped++;
	}
	return none;
}

int main(int argc, char **argv)
{
	pthread_t thread[READERS];
	char path[4096], bytes[SIZE];
	check(argc == 2, "usage");
	alarm(120); // should none be mapped any more
	for (int i = 0; i < FILES; i++) {
		snprintf(path, sizeof path, "%s/%d", argv[1], i);
		memset(bytes, i, SIZE);
		file[i] = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
		check(file[i] >= 0 && write(file[i], bytes, SIZE) == SIZE, path);
	}
	check((fd = dup(file[0])) >= 0, "dup");
	for (int i = 0; i < READERS; i++)
		check(pthread_create(&thread[i], NULL, reader, NULL) == 0, "pthread_create");
	for (unsigned i = 0; i < ROUNDS; i++) {
		for (unsigned had = mapped; i % 2 && mapped - had < i % 64;) // else before it is mapped, or just then
			;
		check(dup2(file[i % FILES], fd) == fd, "dup2"); // which lets go of the map
	}
	over = 1;
	for (int i = 0; i < READERS; i++)
		pthread_join(thread[i], NULL);
	close(fd);
	FILE *maps = fopen("/proc/self/maps", "re");
	for (check(maps != NULL, "maps"); fgets(path, sizeof path, maps);)
		check(!strstr(path, argv[1]), "a map that nobody uses is left");
	return 0;
}
