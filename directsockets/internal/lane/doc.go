// Package lane is the shared memory of EXT-DS: its layout, and the two ends of a lane in it, as in
// ext-ds.md (version 2).
//
// A lane is one direction of a connection. It consists of a ring of VELO slots and a window for
// PUTs, both in the writer's memory, and of credit in the reader's memory.
//
//	writer's file                                  reader's file
//	slot k: payload, then status (release) ──────► looks at status (acquire)
//	window: bytes, then RMA_INFO in slot k ──────► copies out of the window
//	room  ◄──────────────── (acquire) slots_taken, window_taken (release)
//
// # Order
//
// All words that processes share are of type [Word]. Its operations come from sync/atomic and are
// sequentially consistent. That gives release and acquire where ext-ds.md asks for them, and both
// fences of sleeping: the store of a status word or of credit comes before the load of mask and
// epoch in [Memory.Asleep] (1), and the store of an epoch comes before the sleeper's second look
// (2). On x86 the stores are XCHG, on arm64 SWPAL followed by LDAR. test/memmodel/channel proves
// that each of them is needed.
//
// Payload and window bytes are plain copies between such accesses.
//
// # Trust
//
// Status words, payloads and credit come from the peer's file. Each is loaded once into a private
// copy, which is checked and then used. If a writer changes stream bytes while they are read, the
// result is something that it could have sent anyway. No loop over slots is longer than a lap.
//
// # What it is not
//
// It makes no system calls except to make and map memory, waits for nothing, and knows no sockets.
// One goroutine at a time owns an end.
package lane
