// An echo server with a thread for each connection that reads a file by an io_uring, as a
// database does:
//
//	fileuring PORT FILE ROUNDS
//
// A thread takes what there is and gives it back by system calls; from its round ROUNDS on
// both go by the ring. Each way that liburing has to hand a request to the kernel is used.
#include <arpa/inet.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SIZE = 8192, BUFFER = 65536 };

static int file, rounds;
static const char *content;

static void must(int ok, const char *what)
{
	if (ok)
		return;
	perror(what);
	exit(1);
}

// turn hands what is prepared to the kernel and returns its result.
static int turn(struct io_uring *ring, int way)
{
	struct io_uring_cqe *e;
	struct __kernel_timespec later = {.tv_sec = 60};
	int r = 0;
	switch (way % 5) {
	case 0:
		r = io_uring_submit(ring);
		break;
	case 1:
		r = io_uring_submit_and_wait(ring, 1);
		break;
	case 2:
		r = io_uring_submit_and_wait_timeout(ring, &e, 1, &later, NULL);
		break;
	case 3:
		r = io_uring_submit_and_get_events(ring);
		break;
	default:
		r = io_uring_submit(ring);
		must(r >= 0, "submit");
		r = io_uring_wait_cqe_timeout(ring, &e, &later);
	}
	must(r >= 0, "submit");
	must(io_uring_wait_cqe(ring, &e) == 0, "wait");
	r = e->res;
	io_uring_cqe_seen(ring, e);
	return r;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct io_uring ring;
	char text[BUFFER], part[100];
	must(io_uring_queue_init(8, &ring, 0) == 0, "no ring");
	for (int i = 0;; i++) {
		unsigned at = (unsigned)i * 37 % (SIZE - sizeof part);
		io_uring_prep_read(io_uring_get_sqe(&ring), file, part, sizeof part, at);
		must(turn(&ring, i) == sizeof part && memcmp(part, content + at, sizeof part) == 0, "read");
		ssize_t n, k;
		if (i < rounds) {
			n = read(fd, text, sizeof text);
		} else {
			io_uring_prep_recv(io_uring_get_sqe(&ring), fd, text, sizeof text, 0);
			n = turn(&ring, i);
		}
		if (n <= 0)
			break;
		for (ssize_t done = 0; done < n; done += k) {
			if (i < rounds) {
				k = write(fd, text + done, (size_t)(n - done));
			} else {
				io_uring_prep_send(io_uring_get_sqe(&ring), fd, text + done, (size_t)(n - done), 0);
				k = turn(&ring, i + 1);
			}
			must(k > 0, "send");
		}
	}
	close(fd);
	io_uring_queue_exit(&ring);
	return NULL;
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int one = 1;
	if (argc != 4)
		return 2;
	a.sin_port = htons((uint16_t)atoi(argv[1]));
	rounds = atoi(argv[3]);
	must((file = open(argv[2], O_RDONLY)) >= 0, argv[2]);
	must((content = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0)) != MAP_FAILED, "mmap");
	int listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	must(bind(listener, (struct sockaddr *)&a, sizeof a) == 0 && listen(listener, 64) == 0, "listen");
	for (int fd; (fd = accept(listener, NULL, NULL)) >= 0;) {
		pthread_t t;
		must(pthread_create(&t, NULL, serve, (void *)(intptr_t)fd) == 0, "thread");
		pthread_detach(t);
	}
	perror("accept");
	return 1;
}
