// Package stream holds the tests that send long random conversations over
// EXT-DS and verify every byte: with the library preloaded, with it linked
// under the sanitizers, with directions going back to TCP at random, and with
// a side that is killed or stopped in the middle.
//
// The work is done by a C program, ccode/stream.c; its Theory of Operation says
// what is verified. A seed that fails is tried again by
//
//	EXN_SEEDS=SEED STREAM_STACKS=1 go test -run NAME ./test/ds/stream
package stream
