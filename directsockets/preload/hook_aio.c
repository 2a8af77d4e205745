// SPDX-License-Identifier: Apache-2.0
//
// Exported: POSIX AIO. Threads of the C library read and write a socket inside
// themselves, as if aio_read were read, and reach no hook, so the connection goes back
// to TCP first. Cancelling and waiting move no bytes.
//
// The functions are looked up when they are called, since they were in a library of
// their own before version 2.34 of the C library, and a static program has them only since.
#include "hook.h"

#include <aio.h>
#include <dlfcn.h>

#if !defined EXTDS_STATIC || __GLIBC_PREREQ(2, 34)
#ifdef EXTDS_STATIC
#define NEXT(name) __real_##name
#else
#define NEXT(name) (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#endif

#define AIO(name, params, args, leave) \
	extern __typeof__(name) __real_##name; \
	EXPORT int name params \
	{ \
		HOOK(); \
		__typeof__(name) *next = NEXT(name); \
		if (!next) { \
			errno = ENOSYS; \
			return -1; \
		} \
		leave; \
		return next args; \
	}

static void leave_list(const struct aiocb *const list[], int n)
{
	for (int i = 0; i < n; i++)
		if (list[i] && list[i]->aio_lio_opcode != LIO_NOP)
			hook_leave(list[i]->aio_fildes, REASON_STDIO);
}

AIO(aio_read, (struct aiocb *a), (a), hook_leave(a->aio_fildes, REASON_STDIO))
AIO(aio_write, (struct aiocb *a), (a), hook_leave(a->aio_fildes, REASON_STDIO))
AIO(lio_listio, (int mode, struct aiocb *const list[], int n, struct sigevent *event), (mode, list, n, event),
    leave_list((const struct aiocb *const *)list, n))

// The same for programs with large files; the blocks are alike where long has 64 bits.
_Static_assert(sizeof(struct aiocb) == sizeof(struct aiocb64), "aiocb");
AIO(aio_read64, (struct aiocb64 *a), (a), hook_leave(a->aio_fildes, REASON_STDIO))
AIO(aio_write64, (struct aiocb64 *a), (a), hook_leave(a->aio_fildes, REASON_STDIO))
AIO(lio_listio64, (int mode, struct aiocb64 *const list[], int n, struct sigevent *event), (mode, list, n, event),
    leave_list((const struct aiocb *const *)list, n))
#endif
