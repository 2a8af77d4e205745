package ofi

import (
	"net/netip"

	"exnet/fabric/ofi/libfabric"
)

// An engine moves bytes between nodes: an endpoint of libfabric, or in tests a
// network with faults. Its methods are called under the node's lock.
type engine interface {
	Insert(netip.AddrPort) (libfabric.Address, error)
	Send(to libfabric.Address, b []byte, r libfabric.Region, context uint64) error
	Recv(b []byte, r libfabric.Region, context uint64) error
	Write(to libfabric.Address, b []byte, r libfabric.Region, at, key, context uint64) error
	Read(to libfabric.Address, b []byte, r libfabric.Region, at, key, context uint64) error
	Register(b []byte, read, write bool, key uint64) (libfabric.Region, error)
	Deregister(libfabric.Region) error
	Poll(into []libfabric.Event) int
	MayWait() bool
	Close()
}

var _ engine = (*libfabric.Endpoint)(nil)

// A context tells what an event is about: the kind in the upper half, an index
// in the lower.
const (
	contextSend = (iota + 1) << 32
	contextRecv
	contextRMA
	contextMask = 0xf << 32
)
