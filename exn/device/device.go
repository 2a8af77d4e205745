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

// Headroom is the room that Read needs in front of a packet, for the kernel's virtio header.
const Headroom = mtu.VNetHeader

// Errors of Read and Write. They are returned unwrapped, so comparing them is cheap.
var (
	// ErrEmpty means that there is nothing to read now.
	ErrEmpty = errors.New("device: nothing to read")
	// ErrGone means that the device was removed: no call will ever succeed again.
	ErrGone = errors.New("device: the interface was removed")
	// ErrDown means that the interface is not up.
	ErrDown = errors.New("device: the interface is down")
	// ErrRefused means that the kernel refused a packet: it has no memory, or the packet is
	// malformed.
	ErrRefused = errors.New("device: the kernel refused the packet")
)

// A Device is the kernel's end of an interface. One goroutine owns Read and Write; the other
// methods are safe for concurrent use.
//
// The virtio header travels beside the packet. Its offsets count from the packet's first byte. Only
// the device knows how long the kernel's header is.
type Device interface {
	Name() string
	Kind() Kind

	// MTU returns the MTU that the interface was opened with.
	MTU() int

	// Offloads returns the offloads that Read's packets may use. Write may be given others, if
	// the device takes them.
	Offloads() exteth.Caps

	// Adopted reports that the interface existed before, left behind by a process that died.
	// Its addresses are in use, and its connections go on.
	Adopted() bool

	// FD returns a descriptor for poll(2), readable when Read will find something. If it is -1,
	// the device is a [Notifier].
	FD() int

	// Read reads one packet of n bytes into b[Headroom:]. The device may also write to the
	// bytes before. Read never blocks. Its errors are ErrEmpty, ErrGone, ErrDown, and
	// ErrRefused for a packet that was lost.
	Read(b []byte) (n int, v exteth.VNet, err error)

	// Write writes one packet. It never blocks and does not keep the bytes. Others may change
	// them meanwhile. Its errors are ErrGone, ErrDown and ErrRefused.
	Write(packet []byte, v exteth.VNet) error

	// SetCarrier sets the carrier, as if a cable were plugged in or out. At first it is down.
	SetCarrier(up bool) error

	// Close closes the device, and removes it if this process made or adopted it. It is
	// idempotent.
	Close() error
}

// An Offloader is a device whose offloads can be switched while packets flow. Offloads that the
// kernel lacks stay off; Offloads shows which are on.
type Offloader interface {
	SetOffloads(exteth.Caps) error
}

// A PartsReader is a device that can read a packet into two pieces of memory: the first bytes into
// head[Headroom:], and the rest into rest. n counts both.
type PartsReader interface {
	ReadParts(head, rest []byte) (n int, v exteth.VNet, err error)
}

// A Notifier is a device without a descriptor. It calls the given function, on any goroutine, when
// there is something to read that was not there at the last Read.
type Notifier interface {
	Notify(func())
}
