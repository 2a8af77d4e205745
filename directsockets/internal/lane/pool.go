package lane

import "sync"

// A Pool is the windows of a memory file of ours, which its lanes borrow.
//
// What a lane announces may lie in any of them, so a lane needs one only while the
// reader has not taken what is in it. Nobody returns a window: a program may make
// no call on a connection after its last write. Whoever needs one takes it from a
// lane that is drained, and touches one that was never used only if none of some
// is. So as many are touched as were busy at once, whatever the number of lanes,
// and a lane that is alone keeps its pages warm.
//
// Who writes much wants the contrary: see ../../preload/pool.c. So a lane that has filled
// its window goes on in the one that was taken longest ago, and the first 16 are touched for that.
//
// Windows are touched up to their extent, which doubles when a writer finds little
// room. What is touched stays: the seal forbids to punch holes.
type Pool struct {
	Dated bool // the reader wants to know when slots were posted

	own, peer *Memory
	least     uint32
	afford    func(bytes uint64, growth bool) bool

	mu   sync.Mutex // guards what follows
	used []window   // those that have been
	hand int        // where to look for one next
	runs []run      // lent, in the order of the file; lend.go

	touched [mostWindows / 64]uint64 // windows that were lent once
}

// A window is free (held by nobody), pinned by who writes into it, or left with
// its holder, all of whose bytes in it are before end.
type window struct {
	held, pinned bool
	holder       uint32
	end          uint64
	extent       uint32
}

const (
	looks = 64 // at windows of others before a new one is touched

	// To go round in, if that is an eighth of all or less.
	round     = 16
	roundPart = 8
)

// NewPool begins with windows of least bytes; afford is asked before more are
// touched.
func NewPool(own, peer *Memory, least uint32, afford func(bytes uint64, growth bool) bool) *Pool {
	return &Pool{own: own, peer: peer, least: min(least, own.Window), afford: afford}
}

// drained says that nobody reads there any more.
func (p *Pool) drained(w *window) bool {
	if !w.held || w.pinned {
		return !w.held
	}
	reader := p.peer.Control(w.holder)
	return reader.windowTaken.Load() >= w.end || reader.Generation.Load() == 0
}

// pin makes the window that the lane has had, or another one, its own to write into;
// -1: there is none. same: it was the former, and what the lane had there is there.
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

// onward makes another window the lane's own, too; what is in those that it has stays there.
// -1: there is none.
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

// lookLocked finds a drained window, from so many behind the one that was taken last.
func (p *Pool) lookLocked(behind int) int {
	for i := range min(len(p.used), looks) {
		if n := (p.hand + behind + i) % len(p.used); p.drained(&p.used[n]) {
			return n
		}
	}
	return -1
}

// anotherLocked has one window more used.
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

// keep pins a window of a lane, if it still has it, or else lets other lanes take it
// when the reader has all before end.
func (p *Pool) keep(lane uint32, n int, pinned bool, end uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w := &p.used[n]; w.held && w.holder == lane {
		w.pinned, w.end = pinned, end
	}
}

// grow doubles the extent of a pinned window, if it may.
func (p *Pool) grow(n int) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := &p.used[n]
	if w.extent < p.own.Window && p.afford(uint64(w.extent), true) {
		w.extent *= 2
	}
	return w.extent
}

// Left is told that our end of a lane is over: its windows are free when the reader's
// end is too.
func (p *Pool) Left(lane uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.used {
		if w := &p.used[n]; w.holder == lane && w.pinned {
			w.pinned, w.end = false, ^uint64(0)
		}
	}
}

// fresh is told that both ends were over, and the lane begins anew.
func (p *Pool) fresh(lane uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n := range p.used {
		if w := &p.used[n]; w.holder == lane {
			w.held, w.pinned = false, false
		}
	}
}
