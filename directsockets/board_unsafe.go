package directsockets

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The board spares connections with a plain peer the search: a file that all
// processes of a fabric directory map, with two times per port of a server, when
// last a busy connection to it was seen by a client with EXT-DS, and when by a
// server with it. Each end notes its own side and looks at the other:
//
//	end:  note own time;  fence;  recent(other time)?  ──yes──► offer
//	                                    └──no──► look again some calls later
//
// Of two that look at the same time at least one sees the other: stores and loads
// of sync/atomic are sequentially consistent. Ports share entries; a wrong yes
// costs some system calls.
//
// Whoever can write the file can mislead others, and end them by truncating it.
// So it is used only in a directory that nobody but its owner can enter, and its
// pages are allocated before it is mapped.
type board struct {
	connected, accepted [boardEntries]atomic.Uint32 // seconds
	brief               [boardEntries]atomic.Uint32 // worth.go
	translates          atomic.Uint32               // written by exn-tun bridge: the ends may know different ports
}

const (
	boardEntries = 4096
	boardRecent  = 2 // seconds
)

func (d *directory) openBoard() *board {
	var dir, file unix.Stat_t
	const others = 0o077
	size := int64(unsafe.Sizeof(board{}))
	if unix.Fstat(d.fd, &dir) != nil || int(dir.Uid) != unix.Geteuid() || dir.Mode&others != 0 {
		return nil
	}
	fd, err := unix.Openat(d.fd, "board-1", unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	if unix.Fstat(fd, &file) != nil || file.Uid != dir.Uid || file.Mode&unix.S_IFMT != unix.S_IFREG ||
		file.Size < size && unix.Fallocate(fd, 0, 0, size) != nil {
		return nil
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil
	}
	return (*board)(unsafe.Pointer(&b[0])) // for as long as the process lives
}

// meet notes that a connection to a server's port is busy, and says whether the
// other end may have EXT-DS. port is the server's as the socket address has it,
// in network order.
func (b *board) meet(port uint16, active bool) bool {
	if b == nil {
		return true
	}
	i := port % boardEntries
	own, other := &b.accepted[i], &b.connected[i]
	if active {
		own, other = other, own
	}
	now := uint32(time.Now().Unix())
	if own.Load() != now {
		own.Swap(now) // a fence for the race detector, too: see lane.Word
	}
	ago := now - other.Load() // less than 0 if that was by a clock that is ahead
	return ago+boardRecent <= 2*boardRecent || b.translated()
}

// translated: somebody may tell of connections whose ends know different addresses (package home). Also where
// nobody can know.
func (b *board) translated() bool { return b == nil || b.translates.Load() != 0 }
