//go:build !cgo || !linux

package libfabric

import (
	"fmt"
	"net/netip"
)

// Load says that this program was built without the means to load anything.
func Load(string) error {
	return fmt.Errorf("%w: this program was built without cgo; build it with CGO_ENABLED=1 on Linux", ErrMissing)
}

// Version is that of no library.
func Version() (major, minor int) { return 0, 0 }

// An Endpoint does not exist here.
type Endpoint struct{ Traits }

// A Region does not exist here.
type Region struct{ Key, Base uint64 }

// Open fails.
func Open(Settings) (*Endpoint, error) { return nil, ErrMissing }

// Close does nothing.
func (*Endpoint) Close() {}

// Insert fails.
func (*Endpoint) Insert(netip.AddrPort) (Address, error) { return 0, ErrMissing }

// Remove fails.
func (*Endpoint) Remove(Address) error { return ErrMissing }

// Send fails.
func (*Endpoint) Send(Address, []byte, Region, uint64) error { return ErrMissing }

// Recv fails.
func (*Endpoint) Recv([]byte, Region, uint64) error { return ErrMissing }

// Write fails.
func (*Endpoint) Write(Address, []byte, Region, uint64, uint64, uint64) error { return ErrMissing }

// Read fails.
func (*Endpoint) Read(Address, []byte, Region, uint64, uint64, uint64) error { return ErrMissing }

// Register fails.
func (*Endpoint) Register([]byte, bool, bool, uint64) (Region, error) { return Region{}, ErrMissing }

// Deregister fails.
func (*Endpoint) Deregister(Region) error { return ErrMissing }

// Poll gives nothing.
func (*Endpoint) Poll([]Event) int { return 0 }

// MayWait says no.
func (*Endpoint) MayWait() bool { return false }
