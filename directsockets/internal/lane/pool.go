package lane

import "sync"

// A Pool is the windows of a memory file of ours, which its lanes borrow.
//
// What a lane announces may lie in any window, so a lane needs one only until the reader has taken
// what is in it. Nobody returns a window, because a program may make no call on a connection after
// its last write. A lane that needs a window takes one from a lane that is drained. It touches a
// new one only if none of some that it looks at is drained. So the number of touched windows is the
// number that were busy at once, whatever the number of lanes, and a lane that is alone keeps its
// pages warm.
//
// A lane that writes much wants the opposite; see ../../preload/pool.c. When it has filled its
// window it goes on in the one that was taken longest ago, and the first 16 are touched for that.
//
// A window is touched up to its extent, which doubles when a writer finds little room. Touched
// memory stays, because the seal forbids to punch holes.
type Pool struct {
	Dated bool // the reader wants to know when slots were posted

	own, peer *Memory
	least     uint32
	afford    func(bytes uint64, growth bool) bool

	mu   sync.Mutex // guards the fields below
	used []window   // the windows used so far
	hand int        // where to look for a window next
	runs []run      // lent, in file order; see lend.go

	touched [mostWindows / 64]uint64 // windows that were lent at some time
}

// A window is free (held by nobody), pinned by the lane that writes to it, or left with its holder.
// Then all the holder's bytes in it are before end.
type window struct {
	held, pinned bool
	holder       uint32
	end          uint64
	extent       uint32
}

const (
	looks = 64 // how many windows of other lanes to check before touching a new one

	// How many windows a writer goes round in, if that is an eighth of all or less.
	round     = 16
	roundPart = 8
)

// NewPool starts with windows of least bytes. It asks afford before more are touched.
func NewPool(own, peer *Memory, least uint32, afford func(bytes uint64, growth bool) bool) *Pool {
	return &Pool{own: own, peer: peer, least: min(least, own.Window), afford: afford}
}

// drained reports whether nobody reads in the window any more.
func (p *Pool) drained(w *window) bool {
	if !w.held || w.pinned {
		return !w.held
	}
	reader := p.peer.Control(w.holder)
	return reader.windowTaken.Load() >= w.end || reader.Generation.Load() == 0
}

// pin gives the lane a window to write to: its former one, or another; -1: there is none. same
// reports that it is the former one, with its contents.
func (p *Pool) pin(lane uint32, had int) (n int, extent uint32, same bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if had >= 0 && p.used[had].held && p.used[had].holder == lane {
		p.used[had].pinned = true
		return had, p.used[had].extent, true
	}
	if n = p.lookLocked(0); n < 0 {
		n = p.anotherLocked()
	}
	if n < 0 {
		p.hand += looks
		return -1, 0, false
	}
	return p.takeLocked(lane, n), p.used[n].extent, false
}

// onward gives the lane another window in addition. The contents of its other windows stay. -1:
// there is none.
func (p *Pool) onward(lane uint32) (n int, extent uint32) {
	if p.own.Windows < round*roundPart {
		return -1, 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	n = -1
	if len(p.used) < round {
		n = p.anotherLocked()
	}
	if n < 0 {
		n = p.lookLocked(1)
	}
	if n < 0 {
		return -1, 0
	}
	return p.takeLocked(lane, n), p.used[n].extent
}

// lookLocked finds a drained window. It starts that many behind the one taken last.
func (p *Pool) lookLocked(behind int) int {
	for i := range min(len(p.used), looks) {
		if n := (p.hand + behind + i) % len(p.used); p.drained(&p.used[n]) {
			return n
		}
	}
	return -1
}

// anotherLocked starts using one more window.
func (p *Pool) anotherLocked() int {
	n, end := len(p.used), int(p.own.Windows)
	if len(p.runs) > 0 {
		end = p.runs[0].first
	}
	if n == end {
		return -1
	}
	extent := p.least
	if p.paid(n) {
		extent = p.own.Window
	} else if !p.afford(uint64(extent), false) {
		return -1
	}
	p.used = append(p.used, window{extent: extent})
	return n
}

func (p *Pool) takeLocked(lane uint32, n int) int {
	w := &p.used[n]
	w.held, w.pinned, w.holder = true, true, lane
	p.hand = n
	return n
}

// keep pins a window of a lane, if the lane still has it, or lets other lanes take it once the
// reader has taken everything before end.
func (p *Pool) keep(lane uint32, n int, pinned bool, end uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := &p.used[n]; w.held && w.holder == lane {
		w.pinned, w.end = pinned, end
	}
}

// grow doubles the extent of a pinned window, if the budget allows.
func (p *Pool) grow(n int) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.used[n]
	if w.extent < p.own.Window && p.afford(uint64(w.extent), true) {
		w.extent *= 2
	}
	return w.extent
}

// Left ends our end of a lane: its windows are free once the reader's end has ended, too.
func (p *Pool) Left(lane uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.used {
		if w := &p.used[n]; w.holder == lane && w.pinned {
			w.pinned, w.end = false, ^uint64(0)
		}
	}
}

// fresh frees the windows of a lane that begins anew, after both its ends have ended.
func (p *Pool) fresh(lane uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.used {
		if w := &p.used[n]; w.holder == lane {
			w.held, w.pinned = false, false
		}
	}
}
