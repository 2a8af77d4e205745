package fabric

import "fmt"

// An NLA is a network logical address: messages carry it in place of pointers. The owner's ATU
// translates it. Layout:
//
//	register[63] generation[62:48] window[47:38] offset[37:0]
//
// window indexes the ATU's base table of 1024 entries (ATU-1). The generation makes an NLA of a
// deregistered window stale, so that it does not alias a later one. An NLA with bit 63 set names a
// register (REG-1). Adding an offset to an NLA stays inside its window as long as the offset is
// within the window's length.
type NLA uint64

const (
	// Windows is the size of the ATU's base table.
	Windows = 1024
	// MaxWindow is the largest window, in bytes. The offset can address 2^38 bytes, and
	// GATEntries pages of the largest page size would suffice for more.
	MaxWindow = 1 << 38
	// GATEntries is the number of page entries of an ATU.
	GATEntries = 1 << 18
)

// MakeNLA builds the address of byte offset of a window.
func MakeNLA(window int, generation uint16, offset uint64) NLA {
	return NLA(uint64(generation&0x7fff)<<48 | uint64(window&(Windows-1))<<38 | offset&(MaxWindow-1))
}

// RegisterNLA returns the address of a register: GETs of 8 bytes read it,
// immediate PUTs write it.
func RegisterNLA(r Register) NLA { return 1<<63 | NLA(r)<<3 }

// Register returns the register that a names.
func (a NLA) Register() (r Register, ok bool) {
	if a>>63 == 0 || a&7 != 0 || a&^(1<<63)>>3 >= NLA(RegisterCount) {
		return 0, false
	}
	return Register(a &^ (1 << 63) >> 3), true
}

// Window returns the index into the base table.
func (a NLA) Window() int { return int(a >> 38 & (Windows - 1)) }

// Generation returns the generation of the base table entry that a was made for.
func (a NLA) Generation() uint16 { return uint16(a >> 48 & 0x7fff) }

// Offset returns the byte offset in the window.
func (a NLA) Offset() uint64 { return uint64(a & (MaxWindow - 1)) }

func (a NLA) String() string {
	if r, ok := a.Register(); ok {
		return "reg:" + r.String()
	}
	return fmt.Sprintf("%d.%d+%#x", a.Window(), a.Generation(), a.Offset())
}

// Rights determine what other nodes may do with a window. The owner's own operations may always use
// it as source and sink.
type Rights uint8

// The rights.
const (
	RemoteRead  Rights = 1 << iota // GET source
	RemoteWrite                    // PUT sink
)

func (r Rights) String() string {
	s := []byte("--")
	if r&RemoteRead != 0 {
		s[0] = 'r'
	}
	if r&RemoteWrite != 0 {
		s[1] = 'w'
	}
	return string(s)
}

// A PageSize s stands for ATU pages of 4 KiB << s.
type PageSize uint8

// The page sizes of the ATU (ATU-1).
const (
	Page4K   PageSize = 0
	Page8K   PageSize = 1
	Page64K  PageSize = 4
	Page2M   PageSize = 9
	Page1G   PageSize = 18
	pageBase          = 4096
)

// Valid reports whether the ATU has pages of this size.
func (p PageSize) Valid() bool {
	return p == Page4K || p == Page8K || p == Page64K || p == Page2M || p == Page1G
}

// Bytes returns the page size in bytes.
func (p PageSize) Bytes() int { return pageBase << p }

// Memory is memory that a backend can share, from [Node.Alloc].
type Memory interface {
	// Bytes returns the memory, which stays valid until Free.
	Bytes() []byte
	// Free gives the memory back. It fails with ErrInUse if windows on it have not been
	// released.
	Free() error
}

// A Mapping is memory that is mapped here and was not made by [Node.Alloc].
type Mapping struct {
	// Bytes is the mapping itself, of whole pages.
	Bytes []byte
	// File is a memfd that Bytes maps completely, with seals against shrinking and growing, or
	// 0 if there is none. It is duplicated, and stays the caller's.
	File uintptr
}

// A WindowSpec determines which part of a Memory becomes a window. If Pages is nil, that is the
// contiguous range [Offset, Offset+Length). Otherwise Pages are indexes of pages of the given size
// in the memory, in window order, and Offset is the first byte within the first page. The last page
// may be used in part (ATU-3).
type WindowSpec struct {
	Rights   Rights
	PageSize PageSize
	Offset   int
	Length   int
	Pages    []int
}

// A Window is registered memory.
type Window interface {
	// NLA returns the address of the window's first byte.
	NLA() NLA
	// Len returns the window's length in bytes.
	Len() int
	// Deregister makes the NLA stale for operations that start from now on. Operations in
	// progress finish (ATU-4).
	Deregister() error
	// Released is closed when nobody accesses the memory any more.
	Released() <-chan struct{}
}
