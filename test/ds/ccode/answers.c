// answers serve: echoes bytes on all connections that it accepts, one after another, at a
// port of 127.0.0.1 that it prints.
// answers call PORT: connects to it and prints "ready"; then for each number that it reads sends
// so many bytes, each after the answer to the last one, and prints "done", or the error.
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int serve(int s, struct sockaddr_in *a, socklen_t n)
{
	char byte;
	if (bind(s, (struct sockaddr *)a, n) < 0 || listen(s, 8) < 0 || getsockname(s, (struct sockaddr *)a, &n) < 0)
		return 1;
	printf("%d\n", ntohs(a->sin_port));
	for (int c; (c = accept(s, NULL, NULL)) >= 0; close(c))
		while (read(c, &byte, 1) == 1 && write(c, &byte, 1) == 1)
			;
	return 1;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons(argc > 2 ? atoi(argv[2]) : 0)};
	int s = socket(AF_INET, SOCK_STREAM, 0);
	char line[64], byte = 'x';
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (argc < 2 || s < 0)
		return 2;
	if (!strcmp(argv[1], "serve"))
		return serve(s, &a, sizeof a);
	if (connect(s, (struct sockaddr *)&a, sizeof a) < 0)
		return 1;
	puts("ready");
	while (fgets(line, sizeof line, stdin)) {
		errno = 0;
		long k = atol(line);
		while (k > 0 && write(s, &byte, 1) == 1 && read(s, &byte, 1) == 1)
			k--;
		puts(k ? strerror(errno) : "done");
	}
	return 0;
}
