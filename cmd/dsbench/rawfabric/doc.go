// Package rawfabric measures a fabric backend through the contract of package
// fabric: what VELO and RMA cost when nothing stands on them, against the
// references of package bare in the same run. It is `dsbench fabric`, and the
// upper bound of everything else that dsbench measures.
//
//	velo-latency     half of a round trip, both sides polling
//	velo-rate        8-byte messages from one sender, each one's number checked
//	rma-put          PUTs into a ring of buffers, every byte read
//	rma-get          GETs out of a ring of buffers, every byte read
//	rma-get-in-place the same without the copy
//	wake             half of a round trip, both sides asleep each time
//	wake-paced       the same, one request a millisecond
//	idle             CPU use of two nodes that wait for each other
//	memory           resident shared memory of channels and windows
//	alloc            heap objects per operation
//
// # Theory of operation
//
// Both processes of a [measure.Duo] attach to the same fabric directory, open
// a VELO and an RMA port each and tell each other the addresses. A buffer ring
// works on the fabric as it does in package bare, with the fabric's means:
//
//	PUT   lead:   PUT into buffer i, completer notification at follow
//	      follow: reads it, immediate PUT of i+1 into lead's tail word
//	GET   follow: writes buffer i, immediate PUT of i+1 into lead's head word
//	      lead:   GET into its sink, reads that; the responder notification
//	              frees the buffer at follow
//
// So a word that is an atomic store in package bare is an immediate PUT or a
// notification here, and a copy is an operation; number of buffers, memory
// touched and reading code are the same.
package rawfabric
