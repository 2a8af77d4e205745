package directsockets

import (
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The board saves a connection whose peer is plain TCP the search for a lane. It is a file that all
// processes of a fabric directory map. For each port of a server it holds two times: when a client
// with EXT-DS last had a busy connection to that port, and when a server with EXT-DS had one. Each
// end notes its own time and looks at the other's:
//
//	end:  note own time;  fence;  recent(other time)?  ──yes──► offer
//	                                    └──no──► look again some calls later
//
// If both ends look at the same time, at least one sees the other, because loads and stores of
// sync/atomic are sequentially consistent. Ports share entries; a false positive costs some system
// calls.
//
// A process that can write the file can mislead the others, and can kill them by truncating it. So
// we use it only in a directory that nobody but its owner can enter, and we allocate its pages
// before mapping it.
type board struct {
	connected, accepted [boardEntries]atomic.Uint32 // seconds
	brief               [boardEntries]atomic.Uint32 // worth.go
	// set by exn-tun bridge: the two ends may know different ports
	translates atomic.Uint32
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
	return (*board)(unsafe.Pointer(&b[0])) // mapped as long as the process lives
}

// meet notes that a connection to a server's port is busy, and reports whether the other end may
// have EXT-DS. The port is the server's, in network order as in the socket address.
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
		own.Swap(now) // a fence for the race detector too: see lane.Word
	}
	ago := now - other.Load() // negative if the other's clock is ahead
	return ago+boardRecent <= 2*boardRecent || b.translated()
}

// translated reports whether a bridge may have registered connections whose ends know different
// addresses (package home). It is also true without a board, where nobody can know.
func (b *board) translated() bool { return b == nil || b.translates.Load() != 0 }
