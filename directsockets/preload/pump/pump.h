// What the parts of pump share.
#ifndef PUMP_H
#define PUMP_H

#include <stdint.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

enum {
	CHUNK = 128 << 10, // what iperf3 writes at a time
	PING = 64,
	LARGEST = 16 << 20, // of a write, without memory of its own
	ROOM = 1 << 30,	    // of memory that a stream goes through
	WARM = 256 << 20,   // bytes of such a stream before it counts
	MANY = 64,	    // streams
	CROWD = 65536,	    // connections, and descriptors
	BUSY = 100,	    // of them that wait for an answer
	KNOWN = 20,	    // round trips after which a connection is no longer new
	PERIOD = 131071,    // of what is sent: a prime, so that what is lost shifts it
	ENDS = 16,	    // compared at both ends of a read
	BUCKETS = 58 << 7,  // of the histogram: see count
};

// What a client begins each connection with, and what ends a stream.
struct hello {
	uint32_t mode, check;
	uint64_t size, rounds; // rounds: of a connection for messages, 0: to its end; of a stream its memory
};
struct answer {
	uint64_t bytes, wrong, cpu;
};

// The command line.
extern struct with {
	const char *mode;
	double seconds, rate, pause, think;
	uint64_t size, streams, rounds, memory, part;
	int buffer, check, json, split;
	struct sockaddr_storage at;
	socklen_t length;
} with;

extern char *pattern; // PERIOD bytes over and over, and LARGEST more to begin anywhere; or the memory

void fail(const char *what);
void wrong(const char *what);

uint64_t clock_ns(clockid_t clock);
uint64_t now(void);

// all reads n bytes; it returns 0 at the end of the stream.
int all(int fd, void *to, size_t n);
int put(int fd, const void *from, size_t n);

// fits: writes may have that size, of a stream that goes through so much memory; 0: none.
int fits(uint64_t size, uint64_t memory);

void make_pattern(uint64_t memory);

// differs looks whether the n bytes at b are those of a stream, or of its memory, from byte at on.
int differs(const char *b, size_t n, uint64_t at, int every);

int open_socket(void);
void no_delay(int fd);

// open_connection makes a connection of a client, with its hello.
int open_connection(char mode);

void serve(int listener);

extern struct run {
	uint64_t begin, end;	 // of what counts, in ns
	uint64_t histogram[BUCKETS]; // of whole round trips, in ns
	uint64_t counted;	 // of them
	uint64_t writing, waiting; // with split: ns in write, and from then to the answer, of all
} run;

// count has the seven highest bits of a time behind the first, so it is right to
// 0.8 %. Package measure of dsbench has the same buckets.
void count(uint64_t ns);

struct sent {
	double rate; // bytes a second
	uint64_t bytes, cpu;
};

// step says how far a crowd is, and waits until who started us has seen it.
void step(const char *what);

// crowd has many connections. They take turns, so that none is idle for long. It sends
// its bytes from opened to done.
struct sent crowd(void);

#endif
