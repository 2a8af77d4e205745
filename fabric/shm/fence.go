package shm

import "sync/atomic"

// storeFence64 is a store and a full fence. The Store of sync/atomic is one as well, except with
// the race detector, where it only has release order on memory that is not Go's.
func storeFence64(p *uint64, v uint64) { atomic.SwapUint64(p, v) }
