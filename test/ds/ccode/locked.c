// The lock of a connection (directsockets/preload/lock.c), in each way in which it can be had.
//
//	locked contend   threads change what is behind it, while another forks and the child does so, too
//	locked orphan    who has it ends: a thread, and a process
//	locked deferred  a signal comes to who has it: its handler runs afterwards
//	locked refused   the handler of a fault that interrupted who has it asks for it
//	locked left      one leaves who has it by longjmp, another waits for it in vain
//	locked waits     a forked child waits for a thread of its parent
//	locked lost      a thread has left a change of the table (files.c) without its end: forks wait but once
//
// Exit status: 0 all is well, 1 not (said on stderr).
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../../directsockets/preload/files.h"
#include "../../../directsockets/preload/lock.h"
#include "../../../directsockets/preload/process.h"

#define CHECK(is) \
	do { \
		if (!(is)) { \
			fprintf(stderr, "locked: line %d: not %s\n", __LINE__, #is); \
			_exit(1); \
		} \
	} while (0)

static struct behind {
	struct lock lock;
	_Atomic bool sole, begun, ends;
	volatile uint64_t first, second;
	_Atomic int held;
} *b;

static void make(void)
{
	b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	CHECK(b != MAP_FAILED);
	lock_init(&b->lock);
	b->sole = true;
}

static void wait_for(_Atomic bool *what)
{
	static const struct timespec moment = {0, 100000};
	while (!*what)
		nanosleep(&moment, NULL);
}

static void pass(int times)
{
	for (int i = 0; i < times; i++) {
		bool got = i % 4 ? lock_take(&b->lock, &b->sole) == LOCK_OK : lock_try(&b->lock, &b->sole);
		CHECK(got || i % 4 == 0);
		if (!got)
			continue;
		CHECK(b->first == b->second);
		b->first++;
		for (int k = 0; k < i % 16; k++)
			__asm__ volatile("");
		b->second++;
		lock_give(&b->lock);
	}
}

static void *passer(void *times)
{
	pass(*(int *)times);
	return NULL;
}

static pid_t child_does(void (*what)(int), int times)
{
	b->sole = false; // as process_inherit does for those that the child is to have
	pid_t pid = fork();
	CHECK(pid >= 0);
	if (pid == 0) {
		process_begin(); // as each hook does
		what(times);
		_exit(0);
	}
	return pid;
}

static void ended_well(pid_t pid)
{
	int status;
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
}

static void contend(void)
{
	enum { ROUNDS = 40, THREADS = 3 };
	for (int round = 0; round < ROUNDS; round++) {
		pthread_t t[THREADS];
		int times = 20000;
		make();
		for (int i = 0; i < THREADS; i++)
			CHECK(pthread_create(&t[i], NULL, passer, &times) == 0);
		pass(round * 100);
		pid_t pid = child_does(pass, times);
		pass(times);
		for (int i = 0; i < THREADS; i++)
			pthread_join(t[i], NULL);
		ended_well(pid);
		CHECK(b->first == b->second && b->first > 3 * (uint64_t)times);
	}
}

// Threads and processes that end with the lock.
static void *taker(void *unused)
{
	(void)unused;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	return NULL;
}

static void take(int unused)
{
	(void)unused;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
}

static void orphaned(void)
{
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_ORPHAN);
	lock_give(&b->lock);
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	lock_give(&b->lock);
}

static void left_by_thread(void)
{
	pthread_t t;
	CHECK(pthread_create(&t, NULL, taker, NULL) == 0);
	pthread_join(t, NULL);
	orphaned();
}

static void orphan(void)
{
	make();
	left_by_thread();
	make();
	b->sole = false;
	left_by_thread();
	make();
	ended_well(child_does(take, 0)); // a process that has the mutex
	orphaned();
}

// A handler that interrupted who has it.
static bool forks, threads;
static pid_t forked;

static void *nothing(void *unused) { return unused; }

static void gets_it(int threads)
{
	if (threads)
		CHECK(pthread_create(&(pthread_t){0}, NULL, nothing, NULL) == 0);
	b->begun = true;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK); // when the interrupted thread of the parent has given it back
	lock_give(&b->lock);
}

static void handler(int signo)
{
	(void)signo;
	if (forks) {
		b->begun = false;
		forked = child_does(gets_it, threads);
		wait_for(&b->begun);
		nanosleep(&(struct timespec){0, 10000000}, NULL); // it asks now
	}
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_REFUSED);
	CHECK(!lock_try(&b->lock, &b->sole));
}

static void interrupted(void)
{
	for (int i = 0; i < 2; i++) {
		CHECK(i ? lock_try(&b->lock, &b->sole) : lock_take(&b->lock, &b->sole) == LOCK_OK);
		raise(SIGFPE);
		lock_give(&b->lock);
		if (forks)
			ended_well(forked);
	}
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	lock_give(&b->lock);
}

static void *sleeper(void *unused)
{
	(void)unused;
	wait_for(&b->ends);
	return NULL;
}

static void refused(void)
{
	pthread_t t;
	signal(SIGFPE, handler);
	for (int i = 0; i < 2; i++) {
		threads = i;
		make();
		if (threads)
			CHECK(pthread_create(&t, NULL, sleeper, NULL) == 0);
		interrupted();
		forks = true;
		interrupted(); // becomes shared in the middle
		forks = false;
		interrupted();
		b->ends = true;
		if (threads)
			pthread_join(t, NULL);
	}
}

static void *holds(void *lock)
{
	struct behind *of = lock;
	CHECK(lock_take(&of->lock, &of->sole) == LOCK_OK);
	of->begun = true;
	nanosleep(&(struct timespec){0, of->held}, NULL);
	lock_give(&of->lock);
	return NULL;
}

// held_for makes a lock that a thread has for so long.
static struct behind *held_for(int ns, pthread_t *t)
{
	make();
	b->held = ns;
	CHECK(pthread_create(t, NULL, holds, b) == 0);
	wait_for(&b->begun);
	return b;
}

// What handlers run in while there are locks, and what they were told.
static volatile sig_atomic_t ran, value, nested;
static sigjmp_buf out;

static void plain(int signo)
{
	ran++;
	value = signo;
}

static void informed(int signo, siginfo_t *info, void *context)
{
	(void)context;
	plain(signo);
	value = info->si_code == SI_QUEUE ? info->si_value.sival_int : 0;
	nested += lock_take(&b->lock, &b->sole) == LOCK_OK; // nobody has it
	lock_give(&b->lock);
}

static void leaves(int signo) { siglongjmp(out, signo); }

static bool blocked(int signo)
{
	sigset_t now;
	sigprocmask(SIG_BLOCK, NULL, &now);
	return sigismember(&now, signo);
}

static void deferred(void)
{
	struct lock other;
	make();
	lock_init(&other);
	signal(SIGUSR1, plain);
	sigaction(SIGUSR2, &(struct sigaction){.sa_sigaction = informed, .sa_flags = SA_SIGINFO | SA_NODEFER}, NULL);
	for (int i = 0; i < 2; i++) {
		b->sole = i == 0;
		ran = nested = 0;
		CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
		CHECK(lock_try(&other, NULL));
		raise(SIGUSR1);
		raise(SIGUSR1); // pends already
		sigqueue(getpid(), SIGUSR2, (union sigval){.sival_int = 7});
		lock_give(&b->lock);
		CHECK(ran == 0); // there is another one
		lock_give(&other);
		CHECK(ran == 2 && value == 7 && nested == 1);
		CHECK(!blocked(SIGUSR1) && !blocked(SIGUSR2));
		raise(SIGUSR1);
		CHECK(ran == 3); // at once
	}
	signal(SIGUSR1, leaves);
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	if (sigsetjmp(out, 1) == 0) {
		raise(SIGUSR1);
		lock_give(&b->lock);
		CHECK(!"left");
	}
	CHECK(!blocked(SIGUSR1));
	CHECK(lock_try(&b->lock, &b->sole));
	lock_give(&b->lock);
	sysv_signal(SIGUSR1, plain); // SA_RESETHAND: it could not be sent again
	ran = 0;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	raise(SIGUSR1);
	CHECK(ran == 1);
	lock_give(&b->lock);
}

static void jumps(int signo) { siglongjmp(out, signo); }

// What it waited for in vain is one lock; it may have others.
static bool got;
static void works(int signo)
{
	pthread_t t[2];
	struct behind *of = held_for(900000000, &t[0]);
	(void)signo;
	bool vain = lock_take(&of->lock, &of->sole) == LOCK_REFUSED;
	if (!vain)
		lock_give(&of->lock);
	of = held_for(5000000, &t[1]);
	bool other = lock_take(&of->lock, &of->sole) == LOCK_OK;
	if (other)
		lock_give(&of->lock);
	got = vain && other;
	pthread_join(t[0], NULL);
	pthread_join(t[1], NULL);
}

static void left(void)
{
	pthread_t t;
	make();
	signal(SIGFPE, jumps);
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	if (sigsetjmp(out, 1) == 0)
		raise(SIGFPE);
	struct behind *of = held_for(900000000, &t);
	CHECK(lock_take(&of->lock, &of->sole) == LOCK_OK); // as long as that takes
	lock_give(&of->lock);
	pthread_join(t, NULL);

	signal(SIGFPE, works);
	for (int i = 0; i < 5 && !got; i++) { // on a busy machine a lock may be kept for longer, and naps take longer
		make();
		of = b;
		CHECK(lock_take(&of->lock, &of->sole) == LOCK_OK);
		raise(SIGFPE);
		lock_give(&of->lock);
	}
	CHECK(got);
}

// A child that has to wait for a thread of its parent, which it does not have.
static void *holder(void *unused)
{
	(void)unused;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	b->held = 1;
	b->begun = true;
	wait_for(&b->ends);
	nanosleep(&(struct timespec){0, 500000000}, NULL);
	b->held = 0;
	lock_give(&b->lock);
	return NULL;
}

static void follows(int unused)
{
	(void)unused;
	CHECK(!lock_try(&b->lock, &b->sole));
	b->ends = true;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_OK);
	CHECK(!b->held);
	lock_give(&b->lock);
}

static void outlives(int unused)
{
	(void)unused;
	b->ends = true;
	CHECK(lock_take(&b->lock, &b->sole) == LOCK_ORPHAN);
	lock_give(&b->lock);
}

static void hold(void)
{
	CHECK(pthread_create(&(pthread_t){0}, NULL, holder, NULL) == 0);
	wait_for(&b->begun);
}

static void waits(void)
{
	struct lock other = {0}; // as those of sets are, it is held for the fork, which is no reason not to wait
	make();
	hold();
	CHECK(lock_take(&other, &lock_own) == LOCK_OK);
	lock_forks(1);
	ended_well(child_does(follows, 0));
	lock_forks(0);
	lock_give(&other);

	// The parent is killed: the child, whose parent we are not, gets it as an orphan. Its
	// end of the pipe says that it is there no more, a byte that all was well.
	int p[2];
	char ok = 0;
	make();
	CHECK(pipe(p) == 0);
	pid_t parent = fork();
	if (parent == 0) {
		process_begin();
		hold();
		b->sole = false;
		pid_t pid = fork();
		if (pid == 0) {
			process_begin();
			outlives(0);
			_exit(write(p[1], "+", 1) != 1);
		}
		wait_for(&b->ends);
		kill(getpid(), SIGKILL);
	}
	close(p[1]);
	CHECK(waitpid(parent, NULL, 0) == parent);
	CHECK(read(p[0], &ok, 1) == 1 && ok == '+');
}

static void *leaver(void *unused)
{
	files_begin();
	return unused;
}

static void lost(void)
{
	enum { FORKS = 1000 }; // at a second each they would not end in time
	pthread_t t;
	CHECK(pthread_create(&t, NULL, leaver, NULL) == 0);
	pthread_join(t, NULL);
	for (int i = 0; i < FORKS; i++) {
		files_fork();
		files_forked();
		files_begin(); // who changes it does not wait
		files_end();
	}
}

int main(int argc, char **argv)
{
	static const struct { const char *name; void (*run)(void); } parts[] = {
		{"contend", contend}, {"orphan", orphan}, {"deferred", deferred}, {"refused", refused}, {"left", left}, {"waits", waits}, {"lost", lost},
	};
	for (unsigned i = 0; argc == 2 && i < sizeof parts / sizeof *parts; i++) {
		if (strcmp(argv[1], parts[i].name) == 0) {
			alarm(60);
			parts[i].run();
			return 0;
		}
	}
	fprintf(stderr, "usage: locked contend|orphan|deferred|refused|left|waits|lost\n");
	return 1;
}
