// SPDX-License-Identifier: Apache-2.0
//
// The bytes of the streams of buffers.c, and what to say if they are others.
#ifndef DUE_H
#define DUE_H

#include <errno.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char *scene;

static _Noreturn void fail(const char *format, ...)
{
	va_list ap;
	va_start(ap, format);
	fprintf(stderr, "%s, process %d: ", scene, getpid());
	vfprintf(stderr, format, ap);
	fprintf(stderr, " (%s)\n", strerrorname_np(errno));
	exit(1);
}

static __thread uint64_t state = 1;
static size_t rnd(size_t n)
{
	uint64_t x = state += 0x9e3779b97f4a7c15u; // splitmix64
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return (x ^ x >> 31) % n;
}

// due is byte number `at` of a stream.
static inline uint8_t due(uint64_t at) { return (uint8_t)(at * 0x9e3779b97f4a7c15u >> 40); }

static void fill(uint8_t *p, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = due(at + i);
}

static void verify(const uint8_t *p, uint64_t at, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (p[i] != due(at + i))
			fail("byte %lu of the stream is %02x instead of %02x", at + i, p[i], due(at + i));
}

#endif
