package lane

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// A Geometry says how a file is divided.
type Geometry struct{ Lanes, Slots, Windows, Window uint32 }

// The limits of ext-ds.md, section 3.
const (
	leastLanes, mostLanes   = 2, 4096
	leastSlots, mostSlots   = 16, 1024
	leastWindow, mostWindow = 16 << 10, 16 << 20
	mostWindows             = 4096
)

// Valid reports whether files may have this geometry.
func (g Geometry) Valid() bool {
	within := func(n, least, most uint32) bool { return least <= n && n <= most }
	return within(g.Lanes, leastLanes, mostLanes) &&
		within(g.Slots, leastSlots, mostSlots) && g.Slots&(g.Slots-1) == 0 &&
		within(g.Windows, 1, mostWindows) && within(g.Window, leastWindow, mostWindow) && g.Window&(g.Window-1) == 0
}

// Size returns the size of a file of this geometry.
func (g Geometry) Size() uint64 {
	lanes := uint64(g.Lanes)
	n := headSize + lanes*ctlSize + lanes*uint64(g.Slots)*slotSize
	return (n+4095)&^4095 + g.windows()
}

func (g Geometry) windows() uint64 { return uint64(g.Windows) * uint64(g.Window) }

// Touched returns how many bytes of a file one lane uses, besides windows.
func (g Geometry) Touched() uint64 { return ctlSize + uint64(g.Slots)*slotSize }

// A Memory is a mapped file, ours or the peer's. The geometry is the one that was checked when it
// was mapped; later values in the head are ignored.
type Memory struct {
	Geometry
	b []byte
}

// The seals of a file. Nobody can resize it. Nobody but the owner, who mapped it before sealing,
// can write to it, however it is reopened.
const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE

// ErrHostile means that a peer breaks the rules.
var ErrHostile = errors.New("the peer breaks the rules of ext-ds.md")

// A Stranger is a peer of another user. No page of its file may be missing, because reading a
// missing page allocates it, charged to the reader. The seals keep existing pages in place. So a
// file of a stranger, or for one, is allocated as a whole, and is small.
type Stranger bool

// strangeMost is how many bytes a stranger's file may have.
const strangeMost = 8 << 20

// Lessen gives the geometry of a file for a stranger.
func (g Geometry) Lessen() Geometry {
	const lanes, slots, windows, window = 64, 64, 8, 256 << 10
	return Geometry{min(g.Lanes, lanes), min(g.Slots, slots), min(g.Windows, windows), min(g.Window, window)}
}

// New makes and seals a file of ours. The caller closes the descriptor when the peer has it; the
// mapping is enough.
func New(g Geometry, peer Stranger) (m *Memory, fd int, err error) {
	how := unix.MAP_SHARED | unix.MAP_NORESERVE
	if peer {
		how = unix.MAP_SHARED | unix.MAP_POPULATE
	}
	size := int64(g.Size())
	fd, err = unix.MemfdCreate("exn-ds-channel", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate("exn-ds-channel", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	}
	if err != nil {
		return nil, -1, os.NewSyscallError("memfd_create", err)
	}
	m = &Memory{Geometry: g}
	if err = unix.Ftruncate(fd, size); err != nil {
		err = os.NewSyscallError("ftruncate", err)
	} else if m.b, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, how); err != nil {
		err = os.NewSyscallError("mmap", err)
	} else if _, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals|unix.F_SEAL_SEAL); err != nil {
		err = os.NewSyscallError("F_ADD_SEALS", err)
	}
	if err != nil {
		m.Unmap()
		unix.Close(fd)
		return nil, -1, err
	}
	h := m.Head()
	h.magic, h.version, h.size = Magic, Version, uint64(size)
	h.lanes, h.slots, h.windows, h.window = g.Lanes, g.Slots, g.Windows, g.Window
	return m, fd, nil
}

// MapPeer maps the file of a peer for reading, if it is what its HELLO says and
// nobody can pull it away from under us. It does not take the descriptor.
func MapPeer(fd int, g Geometry, size uint64, peer Stranger) (*Memory, error) {
	if !g.Valid() || size != g.Size() {
		return nil, fmt.Errorf("%w: geometry %+v of %d bytes", ErrHostile, g, size)
	}
	// Only memory has seals; so what follows waits for nobody.
	has, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || has&seals != seals {
		return nil, fmt.Errorf("%w: memory with seals %#x (%v)", ErrHostile, has, err)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || uint64(st.Size) != size {
		return nil, fmt.Errorf("%w: memory of %d bytes instead of %d (%v)", ErrHostile, st.Size, size, err)
	}
	// Of huge pages there may be none left when one is touched, which would kill us.
	var on unix.Statfs_t
	if err := unix.Fstatfs(fd, &on); err != nil || on.Type != unix.TMPFS_MAGIC || on.Bsize != int64(os.Getpagesize()) {
		return nil, fmt.Errorf("%w: memory of a file system %#x with pages of %d bytes (%v)", ErrHostile, on.Type, on.Bsize, err)
	}
	if peer {
		hole, err := unix.Seek(fd, 0, unix.SEEK_HOLE)
		if err != nil || size > strangeMost || uint64(hole) != size {
			return nil, fmt.Errorf("%w: memory of a stranger of %d bytes, with a hole at %d (%v)", ErrHostile, size, hole, err)
		}
	}
	b, err := unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return nil, os.NewSyscallError("mmap", err)
	}
	return &Memory{Geometry: g, b: b}, nil
}

// Unmap unmaps the memory, which nobody may use any more.
func (m *Memory) Unmap() {
	if m != nil && m.b != nil {
		unix.Munmap(m.b)
		m.b = nil
	}
}

func (m *Memory) ring(lane uint32) []byte {
	n := uint64(m.Slots) * slotSize
	at := headSize + uint64(m.Lanes)*ctlSize + uint64(lane)*n
	return m.b[at : at+n : at+n]
}

// windows returns the windows that the lanes share.
func (m *Memory) windows() []byte { return m.b[uint64(len(m.b))-m.Geometry.windows():] }

// Arm publishes, by a new odd epoch, that a user of our waiter w is about to sleep. The caller
// looks again afterwards (2), and only then sleeps.
func (m *Memory) Arm(w int) {
	e := &m.Head().waiter[w].epoch
	e.Store((e.Load() + 1) | 1)
}

// Disarm publishes that the user of waiter w is awake.
func (m *Memory) Disarm(w int) {
	e := &m.Head().waiter[w].epoch
	if v := e.Load(); v&1 == 1 {
		e.Store(v + 1)
	}
}

// Asleep returns the epoch of waiter w of the peer, or 0 if it does not sleep. Call it after
// posting or returning credit (1).
func (m *Memory) Asleep(w int) uint64 {
	if e := m.Head().waiter[w].epoch.Load(); e&1 == 1 {
		return e
	}
	return 0
}
