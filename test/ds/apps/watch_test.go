package apps_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"exnet/directsockets/status"
)

// A watch looks from time to time at what the programs of a stage and their
// children publish, and remembers the last state of each socket.
type watch struct {
	fabric  string // of the stage: a number of a process that has ended may be another's by now
	mu      sync.Mutex
	pids    []int
	sockets map[socketKey]seen
	tables  int // looks that found a process with the library
}

// A socketKey tells sockets apart: records in the library are used again.
type socketKey struct {
	pid   int
	inode uint64
}

type seen struct {
	status.Socket
	program string
}

// begin starts to look, until the function it returns is called.
func (w *watch) begin() (end func()) {
	const interval = 25 * time.Millisecond
	w.sockets = make(map[socketKey]seen)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			case <-time.After(interval):
				w.look()
			}
		}
	}()
	return func() { close(stop); <-stopped }
}

func (w *watch) follow(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pids = append(w.pids, pid)
}

func (w *watch) look() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range family(w.pids) {
		p, found := status.Of(pid)
		if !found || p.Err != nil || p.Fabric != w.fabric {
			continue
		}
		w.tables++
		for _, s := range p.Sockets {
			if s.Inode == 0 || !s.Remote.IsValid() || s.State == status.Counting && s.Reason == status.None {
				continue // never busy enough to be looked at
			}
			w.sockets[socketKey{pid, s.Inode}] = seen{s, p.Program}
		}
	}
}

// family is processes with all their descendants.
func family(pids []int) []int {
	all := slices.Clone(pids)
	for i := 0; i < len(all); i++ {
		lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", all[i])) // the pattern is good
		for _, list := range lists {
			text, _ := os.ReadFile(list) // a thread may end meanwhile
			for _, f := range strings.Fields(string(text)) {
				if pid, err := strconv.Atoi(f); err == nil {
					all = append(all, pid)
				}
			}
		}
	}
	return all
}

// bytes are those by lanes, and all.
func (w *watch) bytes() (lane, all uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sockets {
		lane += s.VELO.Sum() + s.RMA.Sum() + s.ZCopy.Sum()
		all += s.VELO.Sum() + s.RMA.Sum() + s.ZCopy.Sum() + s.TCP.Sum()
	}
	return lane, all
}

// left are the programs that moved many bytes by TCP, and more than by lanes. Of a
// program that ends soon the last look may be one before it got a lane.
func (w *watch) left() (programs []string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	const many = 32 << 20
	type count struct{ lane, tcp uint64 }
	counts := make(map[string]count)
	for _, s := range w.sockets {
		c := counts[s.program]
		counts[s.program] = count{c.lane + s.VELO.Sum() + s.RMA.Sum(), c.tcp + s.TCP.Sum()}
	}
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if c := counts[name]; c.tcp > many && c.lane < c.tcp {
			programs = append(programs, name)
		}
	}
	return programs
}

// reasons counts the sockets by program and state, with the bytes that went by
// TCP.
func (w *watch) reasons() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	type count struct{ sockets, tcp uint64 }
	counts := make(map[string]count)
	for _, s := range w.sockets {
		text := fmt.Sprintf("%s: %v", s.program, s.State)
		if s.Reason != status.None {
			text += fmt.Sprintf(" (%v)", s.Reason)
		}
		c := counts[text]
		counts[text] = count{c.sockets + 1, c.tcp + s.TCP.Sum()}
	}
	var out strings.Builder
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		fmt.Fprintf(&out, "\n\t%s: %d sockets, %d bytes by TCP", text, counts[text].sockets, counts[text].tcp)
	}
	return out.String()
}
