package shm

import "sync/atomic"

// storeFence64 is a store and a full fence: which sync/atomic's Store is as well, but not with
// the race detector, that has release order only where memory is not Go's.
func storeFence64(p *uint64, v uint64) { atomic.SwapUint64(p, v) }
