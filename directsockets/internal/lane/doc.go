// Package lane is the shared memory of EXT-DS: its layout, and the two ends of
// a lane in it, as ext-ds.md (version 2) has them.
//
// A lane is one direction of a connection: a ring of VELO slots and a window
// for PUTs, both in the memory of the writer, and credit in that of the reader.
//
//	writer's file                                  reader's file
//	slot k: payload, then status (release) ──────► looks at status (acquire)
//	window: bytes, then RMA_INFO in slot k ──────► copies out of the window
//	room  ◄──────────────── (acquire) slots_taken, window_taken (release)
//
// # Order
//
// All words that processes share are a [Word], by sync/atomic, whose operations
// are sequentially consistent. That is release and acquire where ext-ds.md asks
// for them, and it is also both fences of sleeping: the store of a status word
// or of credit comes before the load of the mask and the epoch that
// [Memory.Asleep] does (1), and the store of an epoch before the sleeper's
// second look (2). On x86 the stores are XCHG, on arm64 SWPAL with LDAR behind.
// test/memmodel/channel proves that each of them is needed.
//
// Payload and window bytes are plain copies between such accesses.
//
// # Trust
//
// From the peer's file come status words, payloads and credit. Each is loaded
// once into a private copy, then checked, and the copy is used. Stream bytes
// that the writer changes while they are read are bytes that it could have
// sent. No loop over slots is longer than a lap.
//
// # What it is not
//
// It makes no system call but those that make and map memory, waits for
// nothing and knows no sockets. An end belongs to one goroutine at a time.
package lane
