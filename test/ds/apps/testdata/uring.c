// An echo server that accepts, reads and writes by an io_uring: uring PORT
#include <arpa/inet.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 1024, BUFFER = 16384 };

static struct connection {
	char text[BUFFER];
	int has, sent; // bytes of text
} connections[CONNECTIONS]; // by descriptor

static struct io_uring ring;
static int listener;

static struct io_uring_sqe *entry(int fd)
{
	struct io_uring_sqe *e = io_uring_get_sqe(&ring);
	if (!e) {
		fprintf(stderr, "uring: the ring is full\n");
		exit(1);
	}
	io_uring_sqe_set_data64(e, fd);
	return e;
}

static void submit_accept(void)
{
	struct io_uring_sqe *e = entry(listener);
	io_uring_prep_accept(e, listener, NULL, NULL, 0);
	io_uring_sqe_set_data64(e, listener);
}

static void submit_next(int fd)
{
	struct connection *c = &connections[fd];
	struct io_uring_sqe *e = entry(fd);
	if (c->sent < c->has)
		io_uring_prep_send(e, fd, c->text + c->sent, c->has - c->sent, MSG_NOSIGNAL);
	else
		io_uring_prep_recv(e, fd, c->text, BUFFER, c->has = c->sent = 0);
	io_uring_sqe_set_data64(e, fd);
}

static void done(int fd, int result)
{
	struct connection *c = fd < CONNECTIONS ? &connections[fd] : NULL;
	if (fd == listener) {
		if (result >= CONNECTIONS) {
			close(result);
		} else if (result >= 0) {
			memset(&connections[result], 0, sizeof connections[result]);
			submit_next(result);
		}
		submit_accept();
	} else if (result <= 0) {
		close(fd);
	} else {
		if (c->has)
			c->sent += result;
		else
			c->has = result;
		submit_next(fd);
	}
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
	int one = 1, error;
	if (argc != 2)
		return 2;
	a.sin_port = htons(atoi(argv[1]));
	listener = socket(AF_INET, SOCK_STREAM, 0);
	setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if ((error = io_uring_queue_init(2 * CONNECTIONS, &ring, 0)) < 0) {
		fprintf(stderr, "uring: no ring: %s\n", strerror(-error));
		return 3;
	}
	if (bind(listener, (struct sockaddr *)&a, sizeof a) < 0 || listen(listener, 64) < 0) {
		perror("uring");
		return 1;
	}
	submit_accept();
	for (struct io_uring_cqe *e;;) {
		io_uring_submit(&ring);
		if ((error = io_uring_wait_cqe(&ring, &e)) < 0)
			return 1;
		int fd = (int)io_uring_cqe_get_data64(e), result = e->res;
		io_uring_cqe_seen(&ring, e);
		done(fd, result);
	}
}
