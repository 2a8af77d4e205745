package device

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/exteth"
	"exnet/mtu"
)

// The packet may lie in memory that another process maps. So nothing here looks into it or keeps a
// pointer to it. The vectors live on the stack, where the garbage collector never finds an address
// that is no longer mapped.
//
// RawSyscall is safe because the descriptor does not block: the scheduler has nothing to do
// meanwhile. Telling it about each call cost 10 to 20 % of the throughput in most runs.

// linearHint is the header length passed to the kernel for a long packet without one. The kernel
// copies that many bytes into the head of its buffer, and the rest into pages. Without the hint,
// older kernels look for contiguous memory for the whole packet, which they do not find under
// memory pressure. 200 bytes hold all headers.
const (
	linearHint = 200
	longPacket = 4096 // up to here the kernel takes one page anyway
)

// Read implements Device. A packet that fills the whole buffer counts as lost, since it may have
// been longer.
func (d *TunTap) Read(b []byte) (int, exteth.VNet, error) {
	if len(b) <= Headroom {
		return 0, exteth.VNet{}, ErrRefused
	}
	got, _, errno := syscall.RawSyscall(unix.SYS_READ, uintptr(d.fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	return received(errno, int(got), len(b), b)
}

var _ PartsReader = (*TunTap)(nil)

// ReadParts implements PartsReader.
func (d *TunTap) ReadParts(head, rest []byte) (int, exteth.VNet, error) {
	if len(head) <= Headroom {
		return 0, exteth.VNet{}, ErrRefused
	}
	vector := [2]unix.Iovec{{Base: unsafe.SliceData(head)}, {Base: unsafe.SliceData(rest)}}
	vector[0].SetLen(len(head))
	vector[1].SetLen(len(rest))
	got, _, errno := syscall.RawSyscall(unix.SYS_READV, uintptr(d.fd), uintptr(unsafe.Pointer(&vector)), uintptr(len(vector)))
	return received(errno, int(got), len(head)+len(rest), head)
}

// received translates the result of a read(2) of up to room bytes. b holds the first bytes.
func received(errno syscall.Errno, got, room int, b []byte) (int, exteth.VNet, error) {
	switch errno {
	case 0:
	case unix.EAGAIN, unix.EINTR:
		return 0, exteth.VNet{}, ErrEmpty
	case unix.EBADFD, unix.EBADF:
		return 0, exteth.VNet{}, ErrGone
	case unix.EIO:
		return 0, exteth.VNet{}, ErrDown
	default:
		return 0, exteth.VNet{}, ErrRefused
	}
	n := got - Headroom
	v, ok := exteth.ParseVNet(b[:Headroom], 0)
	if n <= 0 || got >= room || !ok {
		return 0, exteth.VNet{}, ErrRefused
	}
	return n, v, nil
}

// Write implements Device. The kernel takes every offload that it knows, whatever SetOffloads has
// chosen.
func (d *TunTap) Write(packet []byte, v exteth.VNet) error {
	var header [mtu.VNetHeader]byte
	if len(packet) == 0 {
		return ErrRefused
	}
	if v.HdrLen == 0 && len(packet) > longPacket {
		v.HdrLen = linearHint
	}
	if len(packet) > int(mtu.MaxIPv4) {
		d.lookAgain()
	}
	v.Put(header[:], 0)
	vector := [2]unix.Iovec{{Base: &header[0]}, {Base: unsafe.SliceData(packet)}}
	vector[0].SetLen(len(header))
	vector[1].SetLen(len(packet))
	for {
		_, _, errno := syscall.RawSyscall(unix.SYS_WRITEV, uintptr(d.fd), uintptr(unsafe.Pointer(&vector)), uintptr(len(vector)))
		switch errno {
		case 0:
			return nil
		case unix.EINTR:
		case unix.EBADFD, unix.EBADF:
			return ErrGone
		case unix.EIO:
			return ErrDown
		default:
			return ErrRefused
		}
	}
}
