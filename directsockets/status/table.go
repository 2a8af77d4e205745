package status

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/netip"
	"os"

	"golang.org/x/sys/unix"
)

// The head, as in ext-ds.md.
const (
	magic   = 0x3154415453445845 // "EXDSTAT1"
	version = 3

	headSize  = 4096
	groupAt   = 248 // 1: EXN_PEERS=group
	laneAt    = 252 // the version of lanes
	programAt = 256
	fabricAt  = 272

	// The offsets of a record's fields are here, in this order.
	fieldsAt = 32
)

// The fields of a record.
const (
	fieldState = iota
	fieldReason
	fieldTuple
	fieldInode
	fieldTCPRead
	fieldTCPWritten
	fieldLaneRead
	fieldLaneWritten
	fieldReadMode
	fieldWriteMode
	fieldRMARead
	fieldRMAWritten
	fieldZCopyRead
	fieldZCopyWritten
	fieldNumber
	fields
)

// width is how many bytes a field has.
var width = [fields]uint64{4, 4, 36, 8, 8, 8, 8, 8, 4, 4, 8, 8, 8, 8, 4}

// Limits for what is believed. A table of the library has 16384 records of less than a KiB.
const (
	mostRecords    = 1 << 17
	smallestRecord = 1 << 7
	largestRecord  = 1 << 14
)

// ErrVersion means that a library of another version has written the memory.
var ErrVersion = errors.New("of another version")

// A layout says where the records are, and where the fields are in a record.
type layout struct {
	at, size, count uint64
	field           [fields]uint64
}

// read copies out the contents of a memory of size bytes.
func read(f *os.File, size int64) (Process, error) {
	var head [headSize]byte
	n, err := f.ReadAt(head[:], 0)
	if n == 0 && errors.Is(err, io.EOF) || err == nil && binary.NativeEndian.Uint64(head[0:]) == 0 {
		return Process{}, fmt.Errorf("read its status memory, which it is making: %w", fs.ErrNotExist)
	}
	if err != nil {
		return Process{}, fmt.Errorf("read its status memory: %w", err)
	}
	l, err := layoutOf(&head, size)
	if err != nil {
		return Process{}, err
	}
	p := Process{Program: harmless(head[programAt:fabricAt]), Fabric: harmless(head[fabricAt:]), Lane: binary.NativeEndian.Uint32(head[laneAt:]),
		Group: binary.NativeEndian.Uint32(head[groupAt:]) == 1}
	// Most of the table was never used and is a hole in the file, which is skipped.
	const batch = 64
	records := make([]byte, batch*l.size)
	for i := uint64(0); i < l.count; {
		data, err := unix.Seek(int(f.Fd()), int64(l.at+i*l.size), unix.SEEK_DATA)
		if errors.Is(err, unix.ENXIO) {
			break // only holes from here on
		}
		if err != nil {
			return p, fmt.Errorf("read its status memory: %w", err)
		}
		i = (uint64(data) - l.at) / l.size // the record in which the data begins
		n := min(batch, l.count-min(i, l.count))
		b := records[:n*l.size]
		if _, err := f.ReadAt(b, int64(l.at+i*l.size)); err != nil && !errors.Is(err, io.EOF) {
			return p, fmt.Errorf("read its status memory: %w", err)
		}
		for ; len(b) > 0; b = b[l.size:] {
			if s, used := l.socket(b); used {
				p.Sockets = append(p.Sockets, s)
			}
		}
		i += batch
	}
	return p, nil
}

// layoutOf checks a head. After that, every record is inside the memory, and every field inside its
// record.
func layoutOf(head *[headSize]byte, size int64) (l layout, err error) {
	u32 := func(at int) uint64 { return uint64(binary.NativeEndian.Uint32(head[at:])) }
	if got := binary.NativeEndian.Uint64(head[0:]); got != magic {
		return l, fmt.Errorf("its status memory begins with %#x instead of %#x", got, uint64(magic))
	}
	if got := u32(8); got != version {
		return l, fmt.Errorf("its status memory is %w: %d instead of %d; use the libextds.so and exn-tun of one build", ErrVersion, got, version)
	}
	l = layout{at: binary.NativeEndian.Uint64(head[16:]), size: u32(24), count: u32(28)}
	// no overflow: the values are checked next, and the factors have 32 bits
	end := l.at + l.size*l.count
	if l.at < headSize || l.at > 1<<40 || l.size < smallestRecord || l.size > largestRecord || l.count > mostRecords || end > uint64(size) {
		return l, fmt.Errorf("its status memory of %d bytes has %d records of %d bytes at %d: makes no sense", size, l.count, l.size, l.at)
	}
	for i := range l.field {
		l.field[i] = u32(fieldsAt + 4*i)
		if l.field[i]+width[i] > l.size {
			return l, fmt.Errorf("its status memory has field %d at %d of records of %d bytes: makes no sense", i, l.field[i], l.size)
		}
	}
	return l, nil
}

// socket returns the contents of a record; used is false if the record is free.
func (l *layout) socket(record []byte) (s Socket, used bool) {
	u32 := func(field int) uint32 { return binary.NativeEndian.Uint32(record[l.field[field]:]) }
	u64 := func(field int) uint64 { return binary.NativeEndian.Uint64(record[l.field[field]:]) }
	s.State, s.Reason = State(u32(fieldState)), Reason(u32(fieldReason))
	if s.State == Free || s.State == Closed {
		return s, false
	}
	s.State = s.State.Settled(s.Reason)
	tuple := record[l.field[fieldTuple]:][:width[fieldTuple]]
	s.Local, s.Remote = end(tuple[0:16], tuple[32:34]), end(tuple[16:32], tuple[34:36])
	s.Inode = u64(fieldInode)
	if l.field[fieldNumber] != 0 { // else the library is older, or publishes the ends of all
		s.number = u32(fieldNumber)
	}
	s.ReadsLane, s.WritesLane = s.State == Lane && u32(fieldReadMode) == 1, s.State == Lane && u32(fieldWriteMode) == 1
	s.TCP = Bytes{u64(fieldTCPRead), u64(fieldTCPWritten)}
	s.RMA = Bytes{u64(fieldRMARead), u64(fieldRMAWritten)}
	s.ZCopy = Bytes{u64(fieldZCopyRead), u64(fieldZCopyWritten)}
	s.VELO = Bytes{rest(u64(fieldLaneRead), s.RMA.Read+s.ZCopy.Read), rest(u64(fieldLaneWritten), s.RMA.Written+s.ZCopy.Written)}
	return s, true
}

// end returns one end of a connection. It is not valid if it is not known yet.
func end(address, port []byte) netip.AddrPort {
	p := binary.BigEndian.Uint16(port)
	if p == 0 {
		return netip.AddrPort{}
	}
	return netip.AddrPortFrom(netip.AddrFrom16([16]byte(address)).Unmap(), p)
}

// rest returns all minus part, at least 0: the two are counted at different moments.
func rest(all, part uint64) uint64 { return all - min(all, part) }
