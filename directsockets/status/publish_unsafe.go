package status

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/lane"
)

// A Record is what a process publishes about one socket. A reader gets each number whole, but not
// all of the same moment. The numbers that change with the bytes have a cache line for each
// direction.
type Record struct {
	State, Reason       atomic.Uint32
	ReadMode, WriteMode atomic.Uint32 // 1: through a lane
	Inode               atomic.Uint64
	tuple               [36]byte
	_                   [4]byte

	TCPRead                      atomic.Uint64
	LaneRead, RMARead, ZCopyRead uint64 // written by one goroutine at a time
	_                            [32]byte

	TCPWritten                            atomic.Uint64
	LaneWritten, RMAWritten, ZCopyWritten uint64 // likewise
	_                                     [32]byte
}

// Name sets the connection's addresses.
func (r *Record) Name(local, remote netip.AddrPort) {
	for i, end := range []netip.AddrPort{local, remote} {
		address := end.Addr().As16()
		copy(r.tuple[16*i:], address[:])
		binary.BigEndian.PutUint16(r.tuple[32+2*i:], end.Port())
	}
}

// Clear resets the record for a new socket.
func (r *Record) Clear() { *r = Record{} }

// Reads stores how many bytes were read through a lane, and how many of them came from the window
// and from adverts.
func (r *Record) Reads(all, window, zcopy uint64) {
	r.LaneRead, r.RMARead, r.ZCopyRead = all, window, zcopy
}

// Writes stores the same for bytes that were written.
func (r *Record) Writes(all, window, zcopy uint64) {
	r.LaneWritten, r.RMAWritten, r.ZCopyWritten = all, window, zcopy
}

// Publish makes the memory in which other processes see count sockets of this process, as long as
// it lives. Nobody can shrink it, and only this process writes to it.
func Publish(fabric string, group bool, count int) ([]Record, error) {
	const recordSize = unsafe.Sizeof(Record{})
	size := headSize + count*int(recordSize)
	fd, err := unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	b, err := shared(fd, size)
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("publish the state of sockets: %w", err)
	}
	copy(b, head(fabric, group, count))
	return unsafe.Slice((*Record)(unsafe.Pointer(&b[headSize])), count), nil
}

func shared(fd, size int) ([]byte, error) {
	if err := unix.Ftruncate(fd, int64(size)); err != nil {
		return nil, os.NewSyscallError("ftruncate", err)
	}
	b, err := unix.Mmap(fd, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	// A kernel without the last seal gets the others. Then users who may inspect the process
	// may write what it shows.
	const fixed = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, fixed|unix.F_SEAL_FUTURE_WRITE); err != nil {
		unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, fixed)
	}
	return b, nil
}

// head returns the beginning of the memory.
func head(fabric string, group bool, count int) []byte {
	var r Record
	h := make([]byte, headSize)
	order := binary.NativeEndian
	order.PutUint32(h[8:], version)
	order.PutUint32(h[12:], uint32(os.Getpid()))
	order.PutUint64(h[16:], headSize)
	order.PutUint32(h[24:], uint32(unsafe.Sizeof(r)))
	order.PutUint32(h[28:], uint32(count))
	if group {
		order.PutUint32(h[groupAt:], 1)
	}
	order.PutUint32(h[laneAt:], lane.Version)
	for field, at := range [fields]uintptr{
		fieldState:        unsafe.Offsetof(r.State),
		fieldReason:       unsafe.Offsetof(r.Reason),
		fieldTuple:        unsafe.Offsetof(r.tuple),
		fieldInode:        unsafe.Offsetof(r.Inode),
		fieldTCPRead:      unsafe.Offsetof(r.TCPRead),
		fieldTCPWritten:   unsafe.Offsetof(r.TCPWritten),
		fieldLaneRead:     unsafe.Offsetof(r.LaneRead),
		fieldLaneWritten:  unsafe.Offsetof(r.LaneWritten),
		fieldReadMode:     unsafe.Offsetof(r.ReadMode),
		fieldWriteMode:    unsafe.Offsetof(r.WriteMode),
		fieldRMARead:      unsafe.Offsetof(r.RMARead),
		fieldRMAWritten:   unsafe.Offsetof(r.RMAWritten),
		fieldZCopyRead:    unsafe.Offsetof(r.ZCopyRead),
		fieldZCopyWritten: unsafe.Offsetof(r.ZCopyWritten),
	} {
		order.PutUint32(h[fieldsAt+4*field:], uint32(at))
	}
	copy(h[programAt:fabricAt-1], filepath.Base(os.Args[0]))
	copy(h[fabricAt:headSize-1], fabric)
	order.PutUint64(h[0:], magic)
	return h
}
