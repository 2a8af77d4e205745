// SPDX-License-Identifier: Apache-2.0
//
// Registered buffers of exnet: memory out of which large writes need one copy instead of two.
//
// A blocking write of 512 KiB or more out of a registered buffer is not copied by the
// writer: the reader copies it, straight out of this memory, and the call returns when it
// has. Any process that has the library may be the reader; it needs no permission to look at the
// writer, no setting and no change.
//
// Nothing has to be linked. With libextds.so preloaded, or libextds.a linked, the buffer is
// registered if the connection is on a lane by then, that is, once it has been busy;
// otherwise, and without the library, it is ordinary memory that works as well:
//
//	char *b = exn_buffer(fd, size);
//	if (!b)
//		err(1, "exn_buffer");
//	while ((n = next_frame(b, size)) > 0) {
//		if (write_all(fd, b, n) < 0) // any offset and length inside it
//			err(1, "write");
//		if (!exn_buffer_registered(fd, b)) // perhaps now
//			b = again(fd, b, size);
//	}
//	exn_buffer_free(b);
//
// The peer process has all of a registered buffer mapped, read-only, from the beginning, and can
// read what is in it before it is written. So it is no place for secrets from that peer.
//
// What is in a new buffer is undefined. It stays the program's until it is freed, also if the connection
// ends; it is then ordinary for all others. After fork parent and child share it, as they would
// MAP_SHARED memory; it is over when both have freed it. It is over with exec.
//
// All may be called by several threads at once, but not by signal handlers.
#ifndef EXNET_H
#define EXNET_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#ifdef __cplusplus
extern "C" {
#endif

// What the library has, if it is there. Where code is not position independent the linker decides
// that a weak symbol is not, without waiting for what is preloaded; so there it is looked up.
extern void *exn_ds_buffer(int fd, size_t size) __attribute__((weak));
extern int exn_ds_buffer_registered(int fd, const void *p) __attribute__((weak));
extern void exn_ds_buffer_free(void *p) __attribute__((weak));

#ifdef __PIC__
#define EXN_DS(f) f
#else
extern void *exn_ds_symbol(void *of, const char *name) __asm__("dlsym") __attribute__((weak));
#define EXN_DS(f) (f ? f : exn_ds_symbol ? (__typeof__(&f))exn_ds_symbol((void *)0, #f) : (__typeof__(&f))0)
#endif

// exn_buffer gives size bytes or more, at the beginning of a page, to write on connection fd.
// NULL: errno is EINVAL for size 0, else ENOMEM. Any fd will do for ordinary memory.
static inline void *exn_buffer(int fd, size_t size)
{
	const size_t page = 4096;
	void *(*registers)(int, size_t) = EXN_DS(exn_ds_buffer);
	if (registers)
		return registers(fd, size);
	if (size == 0 || size > PTRDIFF_MAX - page) {
		errno = size ? ENOMEM : EINVAL;
		return NULL;
	}
	return aligned_alloc(page, (size + page - 1) / page * page);
}

// exn_buffer_registered: 1 if large writes of what is at p, anywhere in a buffer, are copied
// once on fd now, else 0.
static inline int exn_buffer_registered(int fd, const void *p)
{
	int (*asks)(int, const void *) = EXN_DS(exn_ds_buffer_registered);
	return asks ? asks(fd, p) : 0;
}

// exn_buffer_free ends a buffer, which no call may be using. NULL is nothing. What
// exn_buffer did not give, or was freed before, must not be passed, as with free; the library
// does nothing then. errno stays.
static inline void exn_buffer_free(void *p)
{
	int saved = errno;
	void (*frees)(void *) = EXN_DS(exn_ds_buffer_free);
	if (frees)
		frees(p);
	else
		free(p);
	errno = saved;
}

#ifdef __cplusplus
}
#endif

#endif
