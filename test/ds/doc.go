// Package ds builds what the tests of EXT-DS run: C programs that make socket
// calls (in ccode), and the library that they are run with.
//
// The oracle of these tests is plain TCP. Everything is run without the library
// first, which proves the test, and then with it preloaded or linked:
//
//   - script plays scripts of socket calls on both ends of a connection and
//     compares what each call gave;
//   - stream verifies every byte of long random conversations, also when one
//     side is killed or stopped, or where each step of the library may be late
//     ([Delayed]);
//   - apps compares real programs.
//
// They need gcc, and the library: [Library] says how it is found. A test that
// lacks one of them skips with that reason.
//
// There are three lengths: -short has few seeds and some of the programs, without it
// all are played, and EXN_LONG=1 makes them longer than CI has time for. EXN_DEBIAN=trixie
// plays apps with the programs and the C library of that Debian release, EXN_LIBC=musl the
// others with programs of musl ([BuildMusl]), where what musl does not have fails (RTLD_DEEPBIND).
//
// Programs are in C because a Go program makes its system calls itself and so
// never meets a preloaded library.
package ds
