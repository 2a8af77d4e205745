//go:build amd64 || arm64

package shm

// Stores with release order and no more: what sync/atomic's Store adds, a full
// fence, costs as much as all the rest of a hot path.

//go:noescape
func storeRelease32(p *uint32, v uint32)

//go:noescape
func storeRelease64(p *uint64, v uint64)
