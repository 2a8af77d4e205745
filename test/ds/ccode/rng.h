// SPDX-License-Identifier: Apache-2.0
//
// Random numbers that follow from a seed.
#ifndef RNG_H
#define RNG_H

#include <stdbool.h>
#include <stdint.h>

struct rng { uint64_t s; };

// rnd is one of 0 .. n-1.
static inline uint32_t rnd(struct rng *r, uint32_t n)
{
	uint64_t x = r->s += 0x9e3779b97f4a7c15u; // splitmix64
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	x ^= x >> 31;
	return (uint32_t)((x >> 32) * n >> 32);
}

static inline bool one_in(struct rng *r, uint32_t n) { return rnd(r, n) == 0; }

// rng_of begins a sequence of its own for each of these.
static inline struct rng rng_of(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
	struct rng r = {seed * 0x9e3779b97f4a7c15u + a * 0xbf58476d1ce4e5b9u + b * 0x94d049bb133111ebu + c * 0xd6e8feb86659fd93u + 1};
	for (int i = 0; i < 8; i++)
		rnd(&r, 2);
	return r;
}

#endif
