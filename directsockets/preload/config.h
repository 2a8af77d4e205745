// SPDX-License-Identifier: Apache-2.0
//
// Settings of the library, all from the environment; config.c lists them.
#ifndef CONFIG_H
#define CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum {
	CONFIG_PATH = 3824, // bytes of the fabric directory's path; it is published in status.h
	CONFIG_SUBNETS = 16,
};

// A subnet, IPv4 as mapped IPv6 addresses.
struct subnet {
	uint8_t address[16];
	uint8_t bits;
};

struct config {
	_Atomic bool off;     // EXN_DS=off, or the program is confined (process.c)
	char fabric[CONFIG_PATH]; // EXN_FABRIC or its default; empty: none
	bool group;           // EXN_PEERS=group: users of a group meet, not only our own
	uint32_t calls;       // EXN_DS_CALLS
	uint64_t bytes;       // EXN_DS_BYTES
	bool guess;           // neither is set: more where connections are short; worth.c
	uint64_t spin_ns;     // EXN_DS_SPIN_US
	uint32_t slots;       // EXN_DS_SLOTS, a power of two
	uint32_t window;      // EXN_DS_WINDOW, a power of two
	uint32_t windows;     // EXN_DS_WINDOWS
	uint32_t window_least; // EXN_DS_WINDOW_LEAST, a power of two
	uint32_t lanes;       // EXN_DS_LANES
	uint32_t velo_max;    // EXN_DS_VELO_MAX
	uint32_t hot;         // EXN_DS_HOT
	uint64_t buffer;      // EXN_DS_BUFFER
	uint64_t stuck_ns;    // EXN_DS_STUCK_MS
	uint64_t zcopy;       // EXN_DS_ZCOPY, ~0: off
	struct subnet subnets[CONFIG_SUBNETS]; // EXN_DS_SUBNETS
	uint32_t subnet_count;
	uint64_t memory;      // EXN_DS_MEMORY, 0: from the limits
	bool verbose;         // EXN_DS_VERBOSE
	bool require;         // EXN_DS_REQUIRE
	uint32_t test_switch; // EXN_DS_TEST_SWITCH
	uint64_t test_seed;   // EXN_DS_TEST_SEED
	bool test_rx_off;     // EXN_DS_TEST_NOCONSENT
	bool test_eager;      // EXN_DS_TEST_EAGER
};
extern struct config config;

void config_init(void);

// config_subnets reads a list such as 10.0.0.0/8,fd00::/8 and returns how many there
// are in it, at most so many.
uint32_t config_subnets(const char *list, struct subnet *to, uint32_t most);

// config_log does if EXN_DS_VERBOSE is set.
void config_log(const char *format, ...) __attribute__((format(printf, 1, 2)));

// config_say writes one line to stderr in any case.
void config_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

// config_warn says once what is wrong with the settings, if anything is.
void config_warn(void);

// config_random is a small generator for the test hooks, seeded by EXN_DS_TEST_SEED.
uint32_t config_random(void);

#endif
