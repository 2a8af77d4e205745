// Package gopeer holds the tests of package directsockets against libextds.so,
// and against itself, in processes of their own.
//
// Both ends play the oracle of ccode/oracle.c: the Go end is in this package's
// test binary, started once more. Every byte, the order, the totals and the end
// are verified by who reads; who conducts kills one side, or sees that both are
// content. A seed that fails is tried again by
//
//	EXN_SEEDS=SEED go test -run NAME ./test/ds/gopeer
package gopeer
