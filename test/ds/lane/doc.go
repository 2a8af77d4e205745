// Package lane keeps docs/protocols/ext-ds.md, the C code and the test vectors in
// directsockets/testdata/lane together.
//
// A C program (record) that is linked with the library writes the vectors: layouts,
// single slots, and recorded lives of connections. What it writes must be what the
// files hold. The tests read the tables of the document and decode the files by
// them, without the C code. So who changes one of the three is told by the other
// two. It also plays a writer that goes round in windows. After a change that is meant:
//
//	go test ./test/ds/lane -update
//
// The vectors are for every other implementation too; vector.go reads them, for the tests
// of package directsockets as well.
package lane
