// SPDX-License-Identifier: Apache-2.0
//
// A program that sends files by sendfile, so often that the library maps them, and a reader, a
// second process, that compares:
//
//	mapped changes DIR        files that become shorter, longer, others, and go
//	mapped race HANDLER DIR   a file that another process truncates while it is sent
//	mapped fault HANDLER DIR  SIGBUS that the program itself brings about
//
// HANDLER is what the program does about SIGBUS: default, before or after the first file was
// sent it installs a handler, plain is one without SA_SIGINFO, blocked, ignored from the
// beginning or unheeded later, or it sends itself one and is killed.
// What sendfile says and sends has to be what pread does at the same time. Exit status: 0, or 1.
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROUNDS = 50, SIZE = 100000, OFTEN = 12, RACES = 200 };

static char bytes[2 * SIZE], expected[2 * SIZE];
static int out, tell; // the connection; the pipe to the reader

static void check(int ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "mapped: %s: %s\n", what, strerror(errno));
	exit(1);
}

static void all(int fd, void *buf, size_t n)
{
	for (ssize_t k; n > 0; n -= (size_t)k, buf = (char *)buf + k)
		check((k = read(fd, buf, n)) > 0, "read");
}

// reader compares what comes by the connection with what the pipe has, where that is sure.
static void reader(uint16_t port, int from)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM, 0);
	check(connect(fd, (struct sockaddr *)&a, sizeof a) == 0, "connect");
	for (int i = 0; i < ROUNDS; i++)
		check(write(fd, "x", 1) == 1 && read(fd, bytes, 1) == 1, "exchange");
	for (uint32_t what[2]; read(from, what, sizeof what) == sizeof what;) {
		all(fd, bytes, what[0]);
		if (!what[1])
			continue;
		all(from, expected, what[0]);
		check(memcmp(bytes, expected, what[0]) == 0, "other bytes than pread gives");
		check(write(fd, "x", 1) == 1, "acknowledge"); // TCP sends what the file has when it is read
	}
	exit(0);
}

// sent sends what a file has from an offset on, and has it compared if that is `sure`.
static void sent(int file, off_t at, int sure)
{
	ssize_t want = pread(file, expected, sizeof expected, at);
	off_t off = at;
	ssize_t r = sendfile(out, file, &off, sizeof expected);
	check(r >= 0 && off == at + r, "sendfile");
	if (sure && r != want) {
		fprintf(stderr, "mapped: sendfile sent %zd, pread had %zd\n", r, want);
		exit(1);
	}
	uint32_t what[2] = {(uint32_t)r, (uint32_t)sure};
	check(write(tell, what, sizeof what) == sizeof what, "tell");
	if (sure)
		check(write(tell, expected, (size_t)r) == r && read(out, bytes, 1) == 1, "tell");
}

static void often(int file)
{
	for (int i = 0; i < OFTEN; i++)
		sent(file, 0, 1);
}

static void fill(int file, int with, size_t from, size_t to)
{
	for (size_t i = 0; i < to - from; i++)
		bytes[i] = (char)(with + i * 7 + i / 4096);
	check(pwrite(file, bytes, to - from, (off_t)from) == (ssize_t)(to - from), "pwrite");
}

static int made(const char *dir, const char *name, int with)
{
	char path[4096];
	snprintf(path, sizeof path, "%s/%s", dir, name);
	int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	check(fd >= 0, path);
	fill(fd, with, 0, SIZE);
	return fd;
}

// maps tells whether a file is mapped.
static int maps(const char *name)
{
	char line[4096];
	int found = 0;
	FILE *f = fopen("/proc/self/maps", "re");
	check(f != NULL, "maps");
	while (fgets(line, sizeof line, f))
		found |= strstr(line, name) != NULL;
	fclose(f);
	return found;
}

static void changes(const char *dir)
{
	int file = made(dir, "first", 1), other = made(dir, "second", 2), n;
	int expect = getenv("EXN_DS_VERBOSE") != NULL; // with the library
	often(file);
	check(maps("/first") == expect, "a file that is sent often is mapped");
	check(ftruncate(file, SIZE / 2) == 0, "ftruncate");
	sent(file, 0, 1);
	often(file);
	check(ftruncate(file, 17000) == 0, "ftruncate"); // in a page that is left
	sent(file, 0, 1);
	sent(file, 16500, 1);
	sent(file, 17000, 1);
	sent(file, 30000, 1);
	often(file);
	fill(file, 3, 16000, SIZE); // longer
	sent(file, 0, 1);
	often(file);
	fill(file, 4, 0, SIZE); // other bytes
	sent(file, 0, 1);
	often(file);
	char name[2][32] = {"/first", "/second"};
	for (n = 0; n < 5; n++) {
		int is = n % 2 ? other : file; // the number stays
		char was[32];
		often(is);
		check(maps(name[n % 2]) == expect, "mapped again");
		memcpy(was, name[n % 2], sizeof was);
		snprintf(name[n % 2], sizeof was, "/third%d", n);
		int third = made(dir, name[n % 2], 5 + n);
		switch (n) {
		case 0:
			close(is);
			check(fcntl(third, F_DUPFD, is) == is, "F_DUPFD");
			break;
		case 1:
			check(dup2(third, is) == is, "dup2");
			break;
		case 2:
			check(close_range((unsigned)is, (unsigned)is, 0) == 0 && dup3(third, is, O_CLOEXEC) == is, "close_range");
			break;
		case 3:
			check(syscall(SYS_close, is) == 0 && fcntl(third, F_DUPFD, is) == is, "raw close");
			break;
		case 4:
			check(fclose(fdopen(is, "r")) == 0 && fcntl(third, F_DUPFD, is) == is, "fclose");
			break;
		}
		close(third);
		sent(is, 0, 1);
		often(is);
		check(maps(name[n % 2]) == expect && !maps(was), "the map goes with the descriptor");
	}
	// Closed by what is no call of libc, and a file of the same size and age in its place.
	long r;
	struct stat a = {0}, b;
	int third = -1;
	for (int tries = 0; tries < 1000 && (third < 0 || a.st_ctim.tv_nsec != b.st_ctim.tv_nsec); tries++) {
		close(third);
		close(file);
		check(made(dir, "twin", 8) == file && (third = made(dir, "last", 9)) >= 0, "the lowest number");
		check(fstat(file, &a) == 0 && fstat(third, &b) == 0, "fstat");
	}
	often(file);
	__asm__ volatile("syscall" : "=a"(r) : "0"(SYS_close), "D"((long)file) : "rcx", "r11", "memory");
	check(r == 0 && fcntl(third, F_DUPFD, file) == file, "inline close");
	sent(file, 0, 1);
	often(file);
	// What is mapped can be sealed. (What TCP sent may not be for a while: pages that were read on
	// another CPU are given back on the one that sent them, when packets come there again.)
	int memory = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	check(memory >= 0, "memfd_create");
	fill(memory, 10, 0, SIZE);
	often(memory);
	check(maps("memfd:memory") == expect, "memory is mapped");
	check(fcntl(memory, F_ADD_SEALS, F_SEAL_WRITE) == 0 || (!expect && errno == EBUSY), "F_SEAL_WRITE");
	// Who may not read it, reads nothing.
	char path[4096];
	off_t off = 0;
	snprintf(path, sizeof path, "%s/last", dir);
	int writer = open(path, O_WRONLY | O_CLOEXEC);
	check(writer >= 0, path);
	for (n = 0; n < OFTEN; n++)
		check(sendfile(out, writer, &off, SIZE) < 0 && errno == EBADF, "a file that is open for writing only");
}

static volatile sig_atomic_t handled, right;
static sigjmp_buf back;
static volatile char *volatile touched;

static void informed(int signo, siginfo_t *info, void *context)
{
	handled++;
	right = info->si_addr == touched && context && signo == SIGBUS;
	siglongjmp(back, 1);
}

static void plainly(int signo)
{
	handled++;
	right = signo == SIGBUS;
	siglongjmp(back, 1);
}

// install installs a handler, and looks what there was before.
static void install(struct sigaction a)
{
	struct sigaction none = {.sa_handler = SIG_DFL}, was;
	check(sigaction(SIGBUS, &a, &was) == 0 && was.sa_handler == SIG_DFL && !(was.sa_flags & (SA_SIGINFO | SA_ONSTACK)), "there was none");
	for (int i = 0; i < 2; i++) {
		check(sigaction(SIGBUS, NULL, &was) == 0 && was.sa_sigaction == a.sa_sigaction, "another handler than was installed");
		check((was.sa_flags & (SA_SIGINFO | SA_ONSTACK)) == (a.sa_flags & (SA_SIGINFO | SA_ONSTACK)), "other flags");
		check(sigaction(SIGBUS, &none, &was) == 0 && was.sa_sigaction == a.sa_sigaction, "another handler was there");
		check(sigaction(SIGBUS, &a, &was) == 0 && was.sa_handler == SIG_DFL, "none was there");
	}
}

// handle does what the program does about SIGBUS before the first file is sent, or later.
static void handle(const char *handler, int later)
{
	sigset_t bus;
	sigemptyset(&bus);
	sigaddset(&bus, SIGBUS);
	if (strcmp(handler, later ? "after" : "before") == 0)
		install((struct sigaction){.sa_sigaction = informed, .sa_flags = SA_SIGINFO});
	if (strcmp(handler, "plain") == 0 && !later)
		install((struct sigaction){.sa_handler = plainly});
	if (strcmp(handler, later ? "unheeded" : "ignored") == 0)
		signal(SIGBUS, SIG_IGN);
	if (strcmp(handler, "blocked") == 0 && later)
		sigprocmask(SIG_BLOCK, &bus, NULL);
}

static void race(const char *handler, const char *dir)
{
	int file = made(dir, "raced", 1), status;
	handle(handler, 0);
	often(file);
	handle(handler, 1);
	_Atomic int *go = mmap(NULL, sizeof *go, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	check(go != MAP_FAILED, "mmap");
	pid_t pid = fork();
	if (pid == 0)
		prctl(PR_SET_PDEATHSIG, SIGKILL);
	for (unsigned i = 0; pid == 0; i++) {
		while (!*go)
			sched_yield();
		for (volatile unsigned wait = i * 977 % 20000; wait > 0; wait--)
			;
		if (ftruncate(file, 0) < 0 || ftruncate(file, SIZE) < 0)
			_exit(1);
		*go = 0;
	}
	for (int i = 0; i < RACES; i++) {
		for (int k = 0; k < OFTEN; k++) // it is mapped then
			sent(file, 0, 0);
		*go = 1;
		while (*go)
			sent(file, 0, 0);
	}
	kill(pid, SIGKILL);
	check(waitpid(pid, &status, 0) == pid, "waitpid");
	check(handled == 0, "the program's handler was called");
}

static void fault(const char *handler, const char *dir)
{
	int file = made(dir, "own", 1), other = made(dir, "other", 2);
	handle(handler, 0);
	often(other);
	handle(handler, 1);
	char *at = mmap(NULL, SIZE, PROT_READ, MAP_SHARED, file, 0);
	check(at != MAP_FAILED && ftruncate(file, 0) == 0, "mmap");
	touched = at + 5000;
	if (strcmp(handler, "killed") == 0)
		kill(getpid(), SIGBUS);
	if (!sigsetjmp(back, 1))
		check(*touched != 0 && 0, "the access was no fault");
	check(handled == 1 && right, "the handler was not called right");
	sent(other, 0, 1);
	if (!sigsetjmp(back, 1))
		check(*touched != 0 && 0, "the access was no fault");
	check(handled == 2 && right, "the handler was not called again");
}

int main(int argc, char **argv)
{
	struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t n = sizeof a;
	int p[2], status;
	if (argc == 4 && strcmp(argv[1], "reader") == 0)
		reader((uint16_t)atoi(argv[2]), atoi(argv[3]));
	check(argc == 3 || argc == 4, "usage");
	int l = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	check(bind(l, (struct sockaddr *)&a, n) == 0 && listen(l, 1) == 0 && getsockname(l, (struct sockaddr *)&a, &n) == 0, "listen");
	check(pipe2(p, O_CLOEXEC) == 0, "pipe");
	pid_t pid = fork();
	if (pid == 0) {
		char port[8], from[8];
		snprintf(port, sizeof port, "%d", ntohs(a.sin_port));
		snprintf(from, sizeof from, "%d", dup(p[0]));
		execl(argv[0], argv[0], "reader", port, from, (char *)NULL);
		_exit(127);
	}
	close(p[0]);
	tell = p[1];
	check((out = accept4(l, NULL, NULL, SOCK_CLOEXEC)) >= 0, "accept");
	for (int i = 0; i < ROUNDS; i++)
		check(read(out, bytes, 1) == 1 && write(out, "x", 1) == 1, "exchange");
	if (strcmp(argv[1], "changes") == 0)
		changes(argv[2]);
	else if (strcmp(argv[1], "race") == 0)
		race(argv[2], argv[3]);
	else
		fault(argv[2], argv[3]);
	close(tell);
	check(waitpid(pid, &status, 0) == pid && status == 0, "the reader");
	return 0;
}
