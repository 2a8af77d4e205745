//go:build race

package directsockets

import "sync/atomic"

// The race detector does not see shared memory. As package syscall does for
// sockets, sent and received tell it that what was done before a write comes
// before what is done after the read that has its bytes.
var order atomic.Uint64

func sent()     { order.Add(1) }
func received() { order.Load() }
