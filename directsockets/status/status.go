// Package status reads what programs that use libextds.so or package directsockets publish about
// their connections: the memory described in ext-ds.md, "Status".
//
//	processes, err := status.All()
//	for _, s := range processes[0].Sockets { … }
//
// Publish makes such a memory, for package directsockets.
//
// It is for display. A record changes while it is read, so its numbers need not be consistent.
// Nobody has checked what a process says about itself: the memory belongs to the program, which may
// write anything. So it is never mapped but copied once, each number is checked before it is used,
// and text is cleaned of terminal control characters. A process with a malformed memory is listed
// with the error, and does not keep others from being shown.
//
// A process that may inspect another (ptrace(2), "access mode checking") sees its connections:
// users see those of their own programs, root sees all.
package status

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/tables"
)

// A Process is a process that uses the library and has opened a TCP socket.
type Process struct {
	PID     int
	Program string   // its name
	Fabric  string   // its fabric directory, empty if it has none
	Group   bool     // it meets programs of other users (EXN_PEERS=group)
	Lane    uint32   // the version of lanes that it knows; with another they are of no use
	Sockets []Socket // its TCP sockets, and those that it passed to children
	Err     error    // why the rest is unknown; usually nil
}

// In reports whether a directory is the process's fabric directory, which it may know by another
// name, as containers do. If one of the two cannot be inspected, the names decide.
func (p Process) In(dir string) bool {
	ours, err := os.Stat(dir)
	theirs, theirErr := os.Stat(fmt.Sprintf("/proc/%d/root%s", p.PID, p.Fabric))
	if err == nil && theirErr == nil {
		return os.SameFile(ours, theirs)
	}
	return filepath.Clean(dir) == filepath.Clean(p.Fabric)
}

// A Socket is a TCP socket of a process.
type Socket struct {
	State  State
	Reason Reason // why it is on TCP, or was

	// Local and Remote are its ends. Remote is not valid of one that is not connected,
	// nor are both of one whose ends nobody knows: it was passed on, for instance.
	// Inode is the number by which ss -e names it, 0 likewise.
	Local, Remote netip.AddrPort
	Inode         uint64
	number        uint32 // a descriptor of the process, plus one; 0: none is known

	Peer Peer // who is at the other end, if Explain was asked and it matters

	ReadsLane, WritesLane bool  // whether bytes go through a lane now, for each direction
	TCP, VELO, RMA, ZCopy Bytes // by the path that they took
}

// Bytes counts stream bytes.
type Bytes struct {
	Read    uint64 `json:"read"`
	Written uint64 `json:"written"`
}

// Sum returns the bytes of both directions.
func (b Bytes) Sum() uint64 { return b.Read + b.Written }

// memory is how /proc/PID/fd shows the status memory.
const (
	memoryName = "exn-ds-family"
	memory     = "/memfd:" + memoryName
)

// All looks at every process that this one may inspect.
func All() ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("look for processes: %w; mount proc there", err)
	}
	var all []Process
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		if p, found := Of(pid); found {
			all = append(all, p)
		}
	}
	return all, nil
}

// Of looks at one process. found is false if it does not use the library, has opened no TCP socket,
// has ended, or may not be inspected.
func Of(pid int) (p Process, found bool) {
	dir := fmt.Sprintf("/proc/%d/fd", pid)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return Process{}, false
	}
	for _, e := range entries {
		path := filepath.Join(dir, e.Name())
		target, err := os.Readlink(path)
		if err != nil || !strings.HasPrefix(target, memory) {
			continue
		}
		// An observer has the memory open, too, for a moment, but cannot write to it.
		const writable = 0o200
		if info, err := e.Info(); err != nil || info.Mode()&writable == 0 {
			continue
		}
		p, err := open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return Process{}, false // it has just ended, or just started
		}
		p.PID, p.Err = pid, err
		p.ends()
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err == nil {
			p.Program = harmless(name)
		}
		return p, true
	}
	return Process{}, false
}

// ends finds the ends of sockets that the library has not asked for yet, to spare a
// connection that may end soon the system calls: by their descriptors.
func (p *Process) ends() {
	of := map[uint64]*Socket{}
	for i := range p.Sockets {
		s := &p.Sockets[i]
		if s.Local.IsValid() || s.number == 0 {
			continue
		}
		if inode := tables.Inode(p.PID, int(s.number-1)); inode != 0 {
			of[inode] = s
		}
	}
	if len(of) == 0 {
		return
	}
	tables.Each(fmt.Sprintf("/proc/%d/net", p.PID), func(t tables.Socket) bool {
		// otherwise they stay unknown
		if s := of[t.Inode]; s != nil {
			s.Inode, s.Local = t.Inode, t.Local
			if t.Remote.Port() != 0 {
				s.Remote = t.Remote
			}
		}
		return false
	})
}

// open reads the memory behind a descriptor of another process. That may have
// been exchanged since its name was read, for a pipe or a device even, which
// must not be opened: so it is looked at by a descriptor that opens nothing.
func open(path string) (Process, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return Process{}, fmt.Errorf("look at the status memory: %w", err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return Process{}, fmt.Errorf("look at the status memory: %w", err)
	}
	var on unix.Statfs_t
	if err := unix.Fstatfs(fd, &on); err != nil {
		return Process{}, fmt.Errorf("look at the status memory: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG || on.Type != unix.TMPFS_MAGIC {
		return Process{}, errors.New("its status memory is none: it is not a memory file")
	}
	f, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil {
		return Process{}, fmt.Errorf("open the status memory: %w", err)
	}
	defer f.Close()
	return read(f, st.Size)
}

// harmless returns text up to its first NUL or line end, without characters that control a
// terminal.
func harmless(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	s, _, _ = strings.Cut(s, "\n")
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}
