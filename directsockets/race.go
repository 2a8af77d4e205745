//go:build race

package directsockets

import "sync/atomic"

// The race detector does not see shared memory. sent and received tell it that everything before a
// write happens before everything after the read that returns its bytes. Package syscall does the
// same for sockets.
var order atomic.Uint64

func sent()     { order.Add(1) }
func received() { order.Load() }
