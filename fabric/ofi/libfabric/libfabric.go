// Package libfabric is the few calls of libfabric that fabric/ofi needs.
//
// # Why
//
// The library is found when the program runs, not when it is built: one binary
// works on machines with libfabric 1.17 (Debian 12), with 2.1 (Debian 13), and
// without, where [Load] says which package is missing. Six functions are looked
// up; all others are inline calls through tables that the library hands out, as
// its headers have them. The headers are a copy of those of 1.17, and that
// version is what is asked for: a later library keeps to it.
//
// # What it is not
//
// No binding: addresses are IP addresses, an endpoint is RDM with one
// completion queue, and nothing is thread-safe. A program built without cgo has
// the same calls, of which Load says that they are not there.
package libfabric

import (
	"errors"
	"fmt"
	"net/netip"
	"syscall"
)

var (
	// ErrMissing means that the library cannot be loaded.
	ErrMissing = errors.New("libfabric is not there")
	// ErrOld means that the library is older than the headers.
	ErrOld = errors.New("libfabric is too old")
	// ErrAgain means that an operation was not taken now.
	ErrAgain = errors.New("libfabric: not now")
)

const (
	libraryName   = "libfabric.so.1"
	remedyMissing = "install it (Debian: apt install libfabric1)"
	wantVersion   = 1<<16 | 17
	eventBatch    = 64

	// Bits of the provider's mr_mode.
	mrLocal    = 1 << 2
	mrVirtAddr = 1 << 4
	mrProvKey  = 1 << 6
)

// Settings say what endpoint to open.
type Settings struct {
	Provider string         // such as "tcp;ofi_rxm"
	Listen   netip.AddrPort // of an interface of this machine
	Receives int            // receives that will be posted at most
	Sends    int            // operations that will be under way at most
}

// Traits are what the provider makes of them.
type Traits struct {
	Provider         string
	Inject           int
	Sends, Receives  int
	WaitFD           int  // to sleep on; -1 if the provider has none
	LocalRegions     bool // also local memory must be registered
	VirtualAddresses bool // a region starts at its address, else at 0
	ProviderKeys     bool // the provider chooses keys
	KeySize          int  // bytes
}

// An Address is a peer's, inserted.
type Address uint64

// An Event says that an operation is over.
type Event struct {
	Context uint64
	Length  int
	Errno   syscall.Errno // 0: as it should be
}

// An OpenError says why there is no endpoint.
type OpenError struct {
	Settings
	What  string
	Errno syscall.Errno
}

const (
	errNoData = 61 // FI_ENODATA: no provider has what was asked for
)

func (e *OpenError) Error() string {
	remedy := ""
	switch e.Errno {
	case errNoData:
		remedy = fmt.Sprintf(": either this libfabric has no provider %q for RDM endpoints (fi_info lists them), or %v is no address of this machine",
			e.Provider, e.Listen.Addr())
	case syscall.EADDRINUSE:
		remedy = fmt.Sprintf(": another program, or another node with this ID, listens at %v", e.Listen)
	case syscall.EADDRNOTAVAIL:
		remedy = fmt.Sprintf(": %v is no address of this machine (ip addr lists them)", e.Listen.Addr())
	case syscall.ENOMEM:
		remedy = ": there is no memory that may be locked; raise the limit (ulimit -l unlimited)"
	}
	return fmt.Sprintf("libfabric: provider %s at %v: %s%s", e.Provider, e.Listen, e.What, remedy)
}

// Unwrap gives the errno.
func (e *OpenError) Unwrap() error { return e.Errno }
