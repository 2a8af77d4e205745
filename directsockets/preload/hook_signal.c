// SPDX-License-Identifier: Apache-2.0
//
// Theory of Operation
//
// A call that the kernel would have slept in may spin here instead. A handler that
// runs meanwhile must end it, or not, as it would have ended the sleep: poll, select
// and epoll_wait always, the others if the handler has no SA_RESTART. So every
// handler that the program installs is run by a function of ours, which counts on
// its thread that it ran, and of which kind it is.
//
// The program is told of its own handlers. Handlers that were installed past us, by
// a raw system call or inside libc (for setuid, cancellation), are not counted; libc's
// all have SA_RESTART, and a sleep that the kernel ends for one goes on.
//
// While a thread has the lock of a connection its handlers wait (lock.c): what they do, and
// calls after a longjmp, find the connection as after a system call.
#include "hook.h"

#include <errno.h>
#include <string.h>

#include "filemap.h"
#include "lock.h"
#include "nap.h"
#include "sleep.h"
#include "zcopy.h"

typedef void handler(int, siginfo_t *, void *);

// Of each signal, what the program installed. A new handler may run a moment
// before the kernel has its flags.
static struct {
	handler *_Atomic run;
	_Atomic bool restarts;
	_Atomic bool plain; // without SA_SIGINFO
	_Atomic bool once; // SA_RESETHAND
} installed[NSIG];

__thread uint32_t sleep_signals __attribute__((tls_model("initial-exec")));
__thread uint32_t sleep_breaks __attribute__((tls_model("initial-exec")));
__thread uint32_t sleep_kicks __attribute__((tls_model("initial-exec")));

static void count(int signo, siginfo_t *info, void *context)
{
	if (signo == SIGBUS)
		filemap_fault(info, context);
	if (!installed[signo].once && lock_defers(signo, installed[signo].plain ? NULL : info, context))
		return;
	sleep_signals++;
	if (!installed[signo].restarts)
		sleep_breaks++;
	zcopy_end();
	filemap_masked();
	int patience = lock_interrupt();
	installed[signo].run(signo, info, context);
	lock_resume(patience);
	filemap_masked();
}

static bool ours(const struct sigaction *a) { return a->sa_sigaction == count; }

EXPORT int sigaction(int signo, const struct sigaction *new, struct sigaction *old)
{
	HOOK();
	if (signo <= 0 || signo >= NSIG)
		return real.sigaction(signo, new, old);
	handler *before = installed[signo].run;
	bool restarted = installed[signo].restarts, plain = installed[signo].plain, once = installed[signo].once;
	struct sigaction a;
	if (new)
		a = *new;
	if (new && !process_borrowed()) {
		if (signo == SIGBUS)
			filemap_action(&a);
		if (a.sa_handler != SIG_DFL && a.sa_handler != SIG_IGN && !ours(&a) && !filemap_handles(&a)) {
			installed[signo].restarts = a.sa_flags & SA_RESTART;
			installed[signo].plain = !(a.sa_flags & SA_SIGINFO);
			installed[signo].once = a.sa_flags & SA_RESETHAND;
			installed[signo].run = a.sa_sigaction;
			a.sa_sigaction = count;
			a.sa_flags |= signo == SIGBUS ? SA_SIGINFO : 0;
		}
	}
	int r = real.sigaction(signo, new ? &a : NULL, old);
	if (r < 0 && new) {
		installed[signo].restarts = restarted;
		installed[signo].plain = plain;
		installed[signo].once = once;
		installed[signo].run = before;
	}
	if (r == 0 && old && ours(old)) {
		old->sa_sigaction = before;
		if (signo == SIGBUS && plain)
			old->sa_flags &= ~SA_SIGINFO;
	} else if (r == 0 && old && filemap_handles(old)) { // the program has none
		old->sa_handler = SIG_DFL;
		old->sa_flags &= ~(SA_SIGINFO | SA_ONSTACK);
	}
	return r;
}
ALSO(__sigaction, sigaction);

EXPORT int sigprocmask(int how, const sigset_t *set, sigset_t *old)
{
	HOOK();
	filemap_masked();
	return real.sigprocmask(how, set, old);
}

EXPORT int pthread_sigmask(int how, const sigset_t *set, sigset_t *old)
{
	HOOK();
	filemap_masked();
	return real.pthread_sigmask(how, set, old);
}

static void (*install(int signo, void (*f)(int), int flags))(int)
{
	struct sigaction a = {.sa_handler = f, .sa_flags = flags}, old;
	sigemptyset(&a.sa_mask);
	if (f == SIG_ERR) {
		errno = EINVAL;
		return SIG_ERR;
	}
	if (!(flags & SA_RESETHAND))
		sigaddset(&a.sa_mask, signo);
	return sigaction(signo, &a, &old) < 0 ? SIG_ERR : old.sa_handler;
}

static _Atomic uint64_t interrupts; // siginterrupt: signals that signal() lets interrupt

EXPORT void (*signal(int signo, void (*f)(int)))(int)
{
	bool breaks = signo > 0 && signo < 64 && interrupts >> signo & 1;
	return install(signo, f, breaks ? 0 : SA_RESTART);
}
EXPORT void (*bsd_signal(int signo, void (*f)(int)))(int) { return signal(signo, f); }
EXPORT void (*ssignal(int signo, void (*f)(int)))(int) { return signal(signo, f); }
EXPORT void (*sysv_signal(int signo, void (*f)(int)))(int)
{
	return install(signo, f, SA_RESETHAND | SA_NODEFER);
}
EXPORT void (*__sysv_signal(int signo, void (*f)(int)))(int)
{
	return install(signo, f, SA_RESETHAND | SA_NODEFER);
}

EXPORT int siginterrupt(int signo, int on)
{
	struct sigaction a;
	if (sigaction(signo, NULL, &a) < 0)
		return -1;
	if (on) {
		a.sa_flags &= ~SA_RESTART;
		atomic_fetch_or(&interrupts, signo < 64 ? 1ull << signo : 0);
	} else {
		a.sa_flags |= SA_RESTART;
		atomic_fetch_and(&interrupts, signo < 64 ? ~(1ull << signo) : ~0ull);
	}
	return sigaction(signo, &a, NULL);
}

// A handler that does not return leaves the call that it interrupted.
#define JUMP(name) \
	EXPORT __attribute__((noreturn)) void name(struct __jmp_buf_tag to[1], int value) \
	{ \
		HOOK(); \
		nap_give_up(); \
		filemap_leave(); \
		lock_left(); \
		real.name(to, value); \
		__builtin_unreachable(); \
	}
JUMP(longjmp)
JUMP(_longjmp)
JUMP(siglongjmp)
__attribute__((noreturn)) void __longjmp_chk(struct __jmp_buf_tag to[1], int value);
JUMP(__longjmp_chk)
