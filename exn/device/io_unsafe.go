package device

import (
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/exteth"
	"exnet/mtu"
)

// The packet may be memory that another process maps, so nothing here looks into
// it, and nothing keeps a pointer to it: the vectors live on the stack, where
// the garbage collector never finds an address that is mapped no longer.
//
// RawSyscall, because the descriptor does not block: the scheduler has nothing to
// do meanwhile, and telling it cost 10 to 20 % of the throughput in most runs.

// linearHint is the header length given to the kernel with a long packet that has
// none. So much it copies into the head of its buffer, and the rest into pages;
// without it, older kernels look for contiguous memory for all of the packet, which
// under memory pressure they do not find. 200 bytes hold all headers.
const (
	linearHint = 200
	longPacket = 4096 // the kernel takes one page anyway
)

// Read implements Device. A packet that fills all of the buffer was lost, since it
// may have been longer.
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

// received tells what a read(2) of up to room bytes says, whose first are in b.
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

// Write implements Device. The kernel takes every offload that it knows, whatever
// SetOffloads has chosen.
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
