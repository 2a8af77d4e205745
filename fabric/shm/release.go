//go:build amd64 || arm64

package shm

// Stores with release order only. The Store of sync/atomic adds a full fence, which costs as much
// as the rest of a hot path.

//go:noescape
func storeRelease32(p *uint32, v uint32)

//go:noescape
func storeRelease64(p *uint64, v uint64)
