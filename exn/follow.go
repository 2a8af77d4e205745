package exn

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/exteth"
)

// A follower pins the loop to the CPU that the device's packets come from, while they come in bulk
// and there are fewer CPUs than threads that want one.
//
// Say the sender, its daemon, the other daemon and the receiver share two CPUs. The scheduler pairs
// them by chance. The best pair is a daemon and its program: the packet that one has just written
// is in the cache of the other, and the two have to take turns anyway. One TCP stream on two CPUs
// was measured at 42 to 55 Gbit/s so, and at 30 to 47 in any other way. The scheduler does not know
// that. Where a CPU is idle, the daemon is better off there.
//
// The follower looks once in lookTime. After the same result in sureLooks looks it pins the loop's
// thread, until holdTime after the last such look.
//
// Nothing slows down a sender of UDP: a TUN takes all its packets, and those that the loop does not
// read in time are lost. So while most bytes are super-packets of UDP, the loop raises its own
// priority on the shared CPU (36 instead of 30 Gbit/s arrived with the loop at nice -5). TCP needs
// no such help: its data wait in the sender's socket, and would only move slower.
type follower struct {
	origins origins    // of the device's packets
	running func() int // how many threads of the machine want a CPU
	cpus    int        // how many CPUs there are for us
	thread  thread

	counts []uint64 // packets by CPU at the last look
	bytes  int      // read from the device since then
	udp    int      // the part of bytes that is super-packets of UDP
	looked time.Duration
	wanted int // the CPU found then, or noCPU
	sure   int // how often in a row
	pinned int // or noCPU
	until  time.Duration
	moves  uint64
}

type (
	origins interface {
		CPUs() int
		Count(cpu int) uint64
	}
	thread interface {
		pin(cpu int) bool // keeps the thread there until release, if it may run there
		release()
		prefer(bool) // goes before other threads of its CPU, if it may
	}
)

const (
	lookTime  = time.Millisecond
	sureLooks = 3
	holdTime  = 5 * time.Millisecond

	// Bulk is 8 Gbit/s, as for napi's rests: a byte in each nanosecond.
	bulkRate = 1

	noCPU = -1
)

func newFollower(o origins, running func() int, t thread) *follower {
	return &follower{origins: o, running: running, cpus: runtime.NumCPU(), thread: t,
		counts: make([]uint64, o.CPUs()), wanted: noCPU, pinned: noCPU}
}

// read counts what was read from the device.
func (f *follower) read(n int, v exteth.VNet) {
	if f == nil {
		return
	}
	f.bytes += n
	if v.GSO == exteth.GSOUDP {
		f.udp += n
	}
}

// advance does what is due.
func (f *follower) advance(now time.Duration) {
	if f == nil {
		return
	}
	if passed := now - f.looked; passed >= lookTime {
		f.look(now, passed)
	}
	if now >= f.until {
		f.end()
	}
}

// next returns when advance is due.
func (f *follower) next() (at time.Duration, ok bool) {
	if f == nil || f.pinned == noCPU {
		return 0, false
	}
	return f.until, true
}

func (f *follower) end() {
	if f.pinned != noCPU {
		f.thread.prefer(false)
		f.thread.release()
		f.pinned = noCPU
	}
}

func (f *follower) look(now, passed time.Duration) {
	cpu := f.origin()
	if int64(f.bytes) < int64(passed)*bulkRate || cpu != noCPU && f.running() < f.cpus {
		cpu = noCPU
	}
	bursts := f.udp > f.bytes/2
	f.bytes, f.udp, f.looked = 0, 0, now
	if cpu != f.wanted {
		f.wanted, f.sure = cpu, 0
	}
	if f.sure = min(f.sure+1, sureLooks); cpu == noCPU || f.sure < sureLooks {
		return
	}
	if f.pinned != cpu {
		if !f.thread.pin(cpu) {
			return
		}
		f.pinned = cpu
		f.moves++
	}
	f.until = now + holdTime
	f.thread.prefer(bursts)
}

// origin returns the CPU that sent at least seven of eight packets since the last look.
func (f *follower) origin() int {
	var all, most uint64
	cpu := noCPU
	for c, before := range f.counts {
		count := f.origins.Count(c)
		f.counts[c] = count
		if n := count - before; n > 0 {
			all += n
			if n > most {
				most, cpu = n, c
			}
		}
	}
	if most*8 < all*7 {
		return noCPU
	}
	return cpu
}

// A FollowState says how the loop follows the programs whose packets it takes.
type FollowState struct {
	CPU   int    `json:"cpu"`           // the CPU that the loop is pinned to; -1: none
	Moves uint64 `json:"moves"`         // how often the loop was moved
	Off   string `json:"off,omitempty"` // why the loop follows no program
}

func (i *Interface) followState() FollowState {
	if i.follower == nil {
		return FollowState{CPU: noCPU, Off: i.followsNot}
	}
	return FollowState{CPU: i.follower.pinned, Moves: i.follower.moves}
}

// followPrograms makes the loop follow the programs until end is called. It runs on the loop's
// thread. If following is impossible, followsNot says why.
func (i *Interface) followPrograms() (end func()) {
	origins, err := i.openOrigins()
	if err != nil {
		i.followsNot = err.Error()
		return func() {}
	}
	runs, err := os.Open("/proc/loadavg")
	if err != nil {
		_ = origins.Close()
		i.followsNot = err.Error()
		return func() {}
	}
	i.follower = newFollower(origins, (&load{file: runs}).running, new(affinity))
	return func() {
		i.follower.end()
		i.follower, i.followsNot = nil, "the interface is closed"
		_ = origins.Close()
		_ = runs.Close()
	}
}

func (i *Interface) openOrigins() (*device.Origins, error) {
	d, ok := i.dev.(interface {
		Origins() (*device.Origins, error)
	})
	switch {
	case i.cfg.Stay:
		return nil, errors.New("it is switched off")
	case !ok:
		return nil, errors.New("the device does not know where its packets come from")
	}
	return d.Origins()
}

// A load reads /proc/loadavg.
type load struct {
	file *os.File
	text [64]byte
}

// running returns how many threads of the machine run or want to; 0 if that is unknown.
func (l *load) running() int {
	n, _ := unix.Pread(int(l.file.Fd()), l.text[:], 0)
	return parseRunning(l.text[:max(n, 0)])
}

// parseRunning extracts the number from, for example, "0.20 0.18 0.12 3/80 11206".
func parseRunning(text []byte) int {
	before, _, _ := bytes.Cut(text, []byte("/"))
	n, err := strconv.Atoi(string(before[bytes.LastIndexByte(before, ' ')+1:]))
	if err != nil {
		return 0
	}
	return n
}

// An affinity controls where the calling thread may run, and its priority.
type affinity struct {
	former, pinned unix.CPUSet

	preferred    bool
	nice, before int // while preferred, and before
}

func (a *affinity) pin(cpu int) bool {
	now, err := a.get()
	if err != nil {
		return false
	}
	if a.pinned.Count() == 0 || now != a.pinned {
		a.former = now // or it has been changed by others meanwhile
	}
	if !a.former.IsSet(cpu) {
		return false
	}
	a.pinned.Zero()
	a.pinned.Set(cpu)
	return unix.SchedSetaffinity(0, &a.pinned) == nil
}

func (a *affinity) release() {
	if now, err := a.get(); err == nil && now == a.pinned {
		_ = unix.SchedSetaffinity(0, &a.former)
	}
	a.pinned.Zero()
}

// preference is by how much the loop lowers its nice value to go first. It then gets three quarters
// of the CPU if it wants as much.
const preference = 5

func (a *affinity) prefer(on bool) {
	if on == a.preferred {
		return
	}
	now, err := niceness()
	switch {
	case err != nil:
		return
	case on:
		const first = -20
		a.nice, a.before = max(now-preference, first), now
		a.preferred = unix.Setpriority(unix.PRIO_PROCESS, 0, a.nice) == nil // needs CAP_SYS_NICE
		return
	case now == a.nice: // otherwise somebody has changed it meanwhile
		_ = unix.Setpriority(unix.PRIO_PROCESS, 0, a.before)
	}
	a.preferred = false
}

// niceness returns the nice value of the calling thread.
func niceness() (int, error) {
	const most = 20 // the kernel returns this minus the nice value
	n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
	return most - n, err
}

func (a *affinity) get() (s unix.CPUSet, err error) {
	err = unix.SchedGetaffinity(0, &s)
	return s, err
}
