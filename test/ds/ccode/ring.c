// SPDX-License-Identifier: Apache-2.0
//
// ring.c does what liburing does, without it: it maps the rings of an io_uring, puts
// one request into it, and waits for its completion. liburing enters the kernel by an
// instruction of its own that no library sees; so does enter. How the ring was made
// is what a library may see.
#include "ring.h"

#include <errno.h>
#include <linux/io_uring.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

long instruction(long n, long a, long b, long c, long d)
{
#ifdef __x86_64__
	long r;
	register long r10 __asm__("r10") = d;
	register long r8 __asm__("r8") = 0;
	register long r9 __asm__("r9") = 0;
	__asm__ volatile("syscall" : "=a"(r) : "0"(n), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
	return r;
#elif defined __aarch64__
	register long x8 __asm__("x8") = n;
	register long x0 __asm__("x0") = a;
	register long x1 __asm__("x1") = b;
	register long x2 __asm__("x2") = c;
	register long x3 __asm__("x3") = d;
	register long x4 __asm__("x4") = 0;
	register long x5 __asm__("x5") = 0;
	__asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
	return x0;
#else
	long r = syscall(n, a, b, c, d, 0L, 0L);
	return r < 0 ? -errno : r;
#endif
}

static struct {
	int fd;
	_Atomic unsigned *tail, *done, *end; // of the requests; of the completions, by us and by the kernel
	unsigned mask, done_mask, *array;
	struct io_uring_sqe *requests;
	struct io_uring_cqe *completions;
} ring = {.fd = -1};

void c_ring(struct call *c)
{
	struct io_uring_params p = {0};
	long fd;
	if (strcmp(arg(c, 1), "own") == 0) {
		fd = instruction(SYS_io_uring_setup, 8, (long)&p, 0, 0);
		errno = fd < 0 ? (int)-fd : errno;
	} else {
		fd = syscall(SYS_io_uring_setup, 8, &p);
	}
	if (fd < 0) {
		result(c, -1);
		return;
	}
	ring.fd = (int)fd;
	size_t sq_size = p.sq_off.array + p.sq_entries * sizeof(unsigned);
	size_t cq_size = p.cq_off.cqes + p.cq_entries * sizeof(struct io_uring_cqe);
	char *sq = mmap(NULL, sq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQ_RING);
	char *cq = mmap(NULL, cq_size, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_CQ_RING);
	ring.requests = mmap(NULL, p.sq_entries * sizeof *ring.requests, PROT_READ | PROT_WRITE, MAP_SHARED, ring.fd, IORING_OFF_SQES);
	if (sq == MAP_FAILED || cq == MAP_FAILED || ring.requests == MAP_FAILED)
		abort();
	ring.tail = (void *)(sq + p.sq_off.tail);
	ring.mask = *(unsigned *)(void *)(sq + p.sq_off.ring_mask);
	ring.array = (void *)(sq + p.sq_off.array);
	ring.done = (void *)(cq + p.cq_off.head);
	ring.end = (void *)(cq + p.cq_off.tail);
	ring.done_mask = *(unsigned *)(void *)(cq + p.cq_off.ring_mask);
	ring.completions = (void *)(cq + p.cq_off.cqes);
	say(c, "ok");
}

// enter makes one request and gives its result, -1 and errno when it fails.
static long enter(struct io_uring_sqe request)
{
	if (ring.fd < 0) {
		errno = ENXIO;
		return -1;
	}
	unsigned at = *ring.tail & ring.mask;
	ring.requests[at] = request;
	ring.array[at] = at;
	++*ring.tail;
	long r = instruction(SYS_io_uring_enter, ring.fd, 1, 1, IORING_ENTER_GETEVENTS);
	while ((r >= 0 || r == -EINTR) && *ring.done == *ring.end)
		r = instruction(SYS_io_uring_enter, ring.fd, 0, 1, IORING_ENTER_GETEVENTS);
	if (r >= 0) {
		r = ring.completions[*ring.done & ring.done_mask].res;
		++*ring.done;
	}
	if (r < 0)
		errno = (int)-r;
	return r < 0 ? -1 : r;
}

void c_rsend(struct call *c)
{
	size_t n = (size_t)number(c, 2);
	unsigned char *p = filled(c->id, 0, n);
	result(c, enter((struct io_uring_sqe){.opcode = IORING_OP_SEND, .fd = fd_of(c, 1), .addr = (uintptr_t)p, .len = (unsigned)n}));
	free(p);
}

void c_rrecv(struct call *c)
{
	size_t n = (size_t)number(c, 2);
	unsigned char *p = calloc(1, n + 1);
	long r = enter((struct io_uring_sqe){.opcode = IORING_OP_RECV, .fd = fd_of(c, 1), .addr = (uintptr_t)p, .len = (unsigned)n});
	result(c, r);
	say_bytes(c, p, r);
	free(p);
}

void c_rpoll(struct call *c)
{
	long r = enter((struct io_uring_sqe){.opcode = IORING_OP_POLL_ADD, .fd = fd_of(c, 1), .poll32_events = POLLIN | POLLRDHUP});
	say(c, "%s", r < 0 ? strerrorname_np(errno) : r & POLLRDHUP ? "in,rdhup" : r & POLLIN ? "in" : "-");
}
