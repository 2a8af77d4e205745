package device

import (
	"errors"

	"exnet/exteth"
	"exnet/mtu"
)

// A Kind says what a device carries.
type Kind uint8

// The kinds.
const (
	TUN Kind = iota // IP packets
	TAP             // Ethernet frames
)

func (k Kind) String() string {
	if k == TAP {
		return "tap"
	}
	return "tun"
}

// Headroom is what Read needs in front of a packet: room for the kernel's virtio header.
const Headroom = mtu.VNetHeader

// Errors of Read and Write, each the very value, so that comparing them is cheap.
var (
	// ErrEmpty means that there is nothing to read now.
	ErrEmpty = errors.New("device: nothing to read")
	// ErrGone means that the device was removed: no call will ever succeed again.
	ErrGone = errors.New("device: the interface was removed")
	// ErrDown means that the interface is not up.
	ErrDown = errors.New("device: the interface is down")
	// ErrRefused means that the kernel did not take a packet: no memory, or it makes
	// no sense to it.
	ErrRefused = errors.New("device: the kernel refused the packet")
)

// A Device is the kernel's side of an interface. One goroutine owns Read and
// Write; the other methods are safe for concurrent use.
//
// The virtio header travels beside the packet, with offsets that count from the
// packet's first byte; how long the kernel's is, only the device knows.
type Device interface {
	Name() string
	Kind() Kind

	// MTU is that of the interface when it was opened.
	MTU() int

	// Offloads is what the device passes up: what is not in it stands in no header
	// that Read returns. Write may be given more, if the device takes it.
	Offloads() exteth.Caps

	// Adopted reports that the interface was there before, left by a process
	// that died: its addresses are in use, its connections go on.
	Adopted() bool

	// FD is a descriptor for poll(2), readable when Read will find something, or
	// -1; then the device is a [Notifier].
	FD() int

	// Read reads one packet of n bytes to b[Headroom:]; what is before it is the
	// device's to write, too. It never blocks. An error is one of this package's:
	// ErrEmpty, ErrGone, ErrDown, or ErrRefused for a packet that was lost.
	Read(b []byte) (n int, v exteth.VNet, err error)

	// Write writes one packet. It never blocks, and does not keep the bytes, which
	// somebody else may change meanwhile. An error is ErrGone, ErrDown or ErrRefused.
	Write(packet []byte, v exteth.VNet) error

	// SetCarrier says whether the cable is plugged in. At first it is not.
	SetCarrier(up bool) error

	// Close lets go of the device, and removes it if it is this process' to remove.
	// It is idempotent.
	Close() error
}

// An Offloader is a device whose offloads can be switched while packets flow. What the
// kernel does not have stays off: Offloads tells.
type Offloader interface {
	SetOffloads(exteth.Caps) error
}

// A PartsReader is a device that can read a packet into two pieces of memory: the first
// bytes to head[Headroom:], what does not fit there to rest. n counts both.
type PartsReader interface {
	ReadParts(head, rest []byte) (n int, v exteth.VNet, err error)
}

// A Notifier is a device without a descriptor: it calls the given function, on any
// goroutine, when there is something to read that was not there at the last Read.
type Notifier interface {
	Notify(func())
}
