// The first sockets of a process are made by many threads at once; each is then the
// client of a connection with itself. When all were busy it says so, and waits for the
// end of its input.
#include <arpa/inet.h>
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

enum { THREADS = 16, ROUNDS = 40 };

static pthread_barrier_t start;
static int made[THREADS];

static void *make(void *at)
{
	pthread_barrier_wait(&start);
	*(int *)at = socket(AF_INET, SOCK_STREAM, 0);
	return NULL;
}

int main(void)
{
	pthread_t threads[THREADS];
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	socklen_t n = sizeof a;
	char byte = 'x';
	pthread_barrier_init(&start, NULL, THREADS);
	for (int i = 0; i < THREADS; i++)
		pthread_create(&threads[i], NULL, make, &made[i]);
	for (int i = 0; i < THREADS; i++)
		pthread_join(threads[i], NULL);
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	if (bind(listener, (struct sockaddr *)&a, n) < 0 || listen(listener, THREADS) < 0 ||
	    getsockname(listener, (struct sockaddr *)&a, &n) < 0)
		return 1;
	for (int i = 0; i < THREADS; i++) {
		int s;
		if (connect(made[i], (struct sockaddr *)&a, n) < 0 || (s = accept(listener, NULL, NULL)) < 0)
			return 1;
		for (int k = 0; k < ROUNDS; k++)
			if (write(made[i], &byte, 1) != 1 || read(s, &byte, 1) != 1 || write(s, &byte, 1) != 1 ||
			    read(made[i], &byte, 1) != 1)
				return 1;
	}
	puts("busy");
	fflush(stdout);
	return read(0, &byte, 1) != 0;
}
