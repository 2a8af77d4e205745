package exn

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric/shm"
	"exnet/test/netns"
)

// A crossing is a follower without a kernel: the test says which CPUs packets come from, and where
// the thread may be pinned.
type crossing struct {
	*follower
	sent    []uint64
	runs    int // threads that want a CPU
	forbids int // the CPU that the thread must not run on
	at      int // where the thread is pinned
	first   bool
	kind    exteth.VNet // virtio header of what the device is read for
	time.Duration
}

func newCrossing() *crossing {
	c := &crossing{sent: make([]uint64, 4), runs: 4, forbids: noCPU, at: noCPU}
	c.follower = newFollower(c, func() int { return c.runs }, c)
	c.cpus = 4
	return c
}

func (c *crossing) CPUs() int            { return len(c.sent) }
func (c *crossing) Count(cpu int) uint64 { return c.sent[cpu] }

func (c *crossing) pin(cpu int) bool {
	if cpu != c.forbids {
		c.at = cpu
	}
	return cpu != c.forbids
}

func (c *crossing) release()       { c.at = noCPU }
func (c *crossing) prefer(on bool) { c.first = on }

// pass lets time pass while bytes are read from the device. packets come from the CPUs.
func (c *crossing) pass(d time.Duration, bytes int, packets ...uint64) {
	c.Duration += d
	c.read(bytes, c.kind)
	for cpu, n := range packets {
		c.sent[cpu] += n
	}
	c.advance(c.Duration)
}

const millisecondful = 1e6 // bytes per millisecond that count as bulk

// bulk lets milliseconds of bulk traffic pass.
func (c *crossing) bulk(milliseconds int, packets ...uint64) {
	for range milliseconds {
		c.pass(time.Millisecond, millisecondful, packets...)
	}
}

// The loop follows the CPU that bulk comes from, once that is certain, and for a limited time.
func TestFollow(t *testing.T) {
	const ms = time.Millisecond
	for _, s := range []struct {
		name string
		do   func(c *crossing)
		want int
	}{
		{"bulk of CPU 2", func(c *crossing) { c.bulk(3, 0, 0, 20) }, 2},
		{"not yet sure", func(c *crossing) { c.bulk(2, 0, 0, 20) }, noCPU},
		{"no bulk", func(c *crossing) {
			for range 3 {
				c.pass(ms, millisecondful-1, 20)
			}
		}, noCPU},
		{"looked at later", func(c *crossing) {
			for range 3 {
				c.pass(3*ms/2, 3*millisecondful/2, 20)
			}
		}, 0},
		{"which is less bulk", func(c *crossing) {
			for range 3 {
				c.pass(3*ms/2, 3*millisecondful/2-1, 20)
			}
		}, noCPU},
		{"too early to look", func(c *crossing) {
			for range 9 {
				c.pass(ms/4, millisecondful/4, 20)
			}
		}, noCPU},
		{"in small steps", func(c *crossing) {
			for range 12 {
				c.pass(ms/4, millisecondful/4, 20)
			}
		}, 0},
		{"from two CPUs, by halves", func(c *crossing) { c.bulk(3, 10, 10) }, noCPU},
		{"one of eight from another", func(c *crossing) { c.bulk(3, 2, 14) }, 1},
		{"three of 16", func(c *crossing) { c.bulk(3, 3, 13) }, noCPU},
		{"by turns", func(c *crossing) {
			for range 4 {
				c.bulk(1, 20)
				c.bulk(1, 0, 20)
			}
		}, noCPU},
		{"nobody sends", func(c *crossing) { c.bulk(3) }, noCPU},
		{"a CPU has nothing to do", func(c *crossing) { c.runs = 3; c.bulk(3, 20) }, noCPU},
		{"now and then", func(c *crossing) {
			for range 3 {
				c.bulk(2, 20)
				c.runs = 3
				c.bulk(1, 20)
				c.runs = 4
			}
		}, noCPU},
		{"a CPU that it may not use", func(c *crossing) { c.forbids = 0; c.bulk(3, 20) }, noCPU},
		{"it moves", func(c *crossing) { c.bulk(3, 20); c.bulk(3, 0, 20) }, 1},
		{"but not at once", func(c *crossing) { c.bulk(3, 20); c.bulk(2, 0, 20) }, 0},
		{"kept a little longer", func(c *crossing) { c.bulk(3, 20); c.pass(holdTime-1, 0) }, 0},
		{"and no longer", func(c *crossing) { c.bulk(3, 20); c.pass(holdTime, 0) }, noCPU},
		{"from when it was last seen", func(c *crossing) { c.bulk(6, 20); c.pass(holdTime-1, 0) }, 0},
		{"which is over", func(c *crossing) { c.bulk(6, 20); c.pass(holdTime, 0) }, noCPU},
		{"and begins anew", func(c *crossing) { c.bulk(3, 20); c.pass(holdTime, 0); c.bulk(3, 20) }, 0},
		{"in which it has to be sure again", func(c *crossing) { c.bulk(3, 20); c.pass(holdTime, 0); c.bulk(2, 20) }, noCPU},
		{"a trickle after it", func(c *crossing) {
			c.bulk(3, 20)
			for range 5 {
				c.pass(ms, 1000, 1)
			}
		}, noCPU},
		{"the end", func(c *crossing) { c.bulk(3, 20); c.end() }, noCPU},
	} {
		c := newCrossing()
		s.do(c)
		if c.at != s.want || c.pinned != s.want {
			t.Errorf("%s: pinned to %d (%d), want %d", s.name, c.at, c.pinned, s.want)
		}
		if at, ok := c.next(); ok != (s.want != noCPU) || ok && (at <= c.Duration || at > c.Duration+holdTime) {
			t.Errorf("%s: due at %v, %v; it is %v", s.name, at, ok, c.Duration)
		}
	}
	c := newCrossing()
	c.bulk(9, 20)
	c.bulk(9, 0, 20)
	if c.moves != 2 {
		t.Errorf("%d moves, want 2", c.moves)
	}
	var nobody *follower
	nobody.read(1, udpSuper)
	nobody.advance(0)
	if _, ok := nobody.next(); ok {
		t.Error("something is due for nobody")
	}
}

// A sender of UDP super-packets on the same CPU runs after the loop.
func TestFollowPrefers(t *testing.T) {
	const ms = time.Millisecond
	for _, s := range []struct {
		name string
		do   func(c *crossing)
		want bool
	}{
		{"UDP", func(c *crossing) { c.bulk(3, 20) }, true},
		{"not yet sure", func(c *crossing) { c.bulk(2, 20) }, false},
		{"TCP", func(c *crossing) { c.kind = exteth.VNet{GSO: exteth.GSOTCPv4}; c.bulk(3, 20) }, false},
		{"TCP, then UDP", func(c *crossing) {
			c.kind = exteth.VNet{}
			c.bulk(3, 20)
			c.kind = udpSuper
			c.bulk(1, 20)
		}, true},
		{"UDP, then TCP", func(c *crossing) { c.bulk(3, 20); c.kind = exteth.VNet{}; c.bulk(1, 20) }, false},
		{"a half of it", func(c *crossing) {
			for range 3 {
				c.kind = exteth.VNet{}
				c.read(millisecondful/2, c.kind)
				c.kind = udpSuper
				c.pass(ms, millisecondful/2, 20)
			}
		}, false},
		{"most of it", func(c *crossing) {
			for range 3 {
				c.read(millisecondful/2-1, exteth.VNet{})
				c.pass(ms, millisecondful/2+1, 20)
			}
		}, true},
		{"it is over", func(c *crossing) { c.bulk(3, 20); c.pass(holdTime, 0) }, false},
		{"the end", func(c *crossing) { c.bulk(3, 20); c.end() }, false},
		{"a CPU that it may not use", func(c *crossing) { c.forbids = 0; c.bulk(3, 20) }, false},
	} {
		c := newCrossing()
		c.kind = udpSuper
		s.do(c)
		if c.first != s.want {
			t.Errorf("%s: preferred %v", s.name, c.first)
		}
	}
}

// After a preference ends, the thread has its former nice value, or the one that somebody else set
// meanwhile.
func TestPreference(t *testing.T) {
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	before, err := niceness()
	if err != nil {
		t.Fatal(err)
	}
	var a affinity
	is := func(what string, want int) {
		t.Helper()
		if got, err := niceness(); err != nil || got != want {
			t.Errorf("%s: nice %d, %v; want %d", what, got, err, want)
		}
	}
	a.prefer(false)
	is("never preferred", before)
	if a.prefer(true); !a.preferred {
		is("not permitted", before)
		t.Skip("needs CAP_SYS_NICE")
	}
	is("preferred", before-preference)
	a.prefer(true)
	is("again", before-preference)
	a.prefer(false)
	is("not any more", before)
	a.prefer(true)
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, before+1); err != nil {
		t.Fatal(err)
	}
	a.prefer(false)
	is("set by somebody else", before+1)
	a.prefer(false)
	is("again", before+1)
	if err := unix.Setpriority(unix.PRIO_PROCESS, 0, -18); err != nil {
		t.Fatal(err)
	}
	a.prefer(true)
	is("almost first before", -20)
	a.prefer(false)
	is("not any more", -18)
}

func TestParseRunning(t *testing.T) {
	for text, want := range map[string]int{
		"0.20 0.18 0.12 3/80 11206\n": 3, "12.00 9.00 7.00 128/4000 1\n": 128, "": 0, "0.20 0.18": 0, "1/": 1, "x/3": 0, "/": 0, "0.1 -/2": 0,
	} {
		if got := parseRunning([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}

// A thread is pinned only where it may run. Afterwards it may run where it could before, or where
// somebody else allowed meanwhile.
func TestAffinity(t *testing.T) {
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for c := range 1024 {
		if mine.IsSet(c) {
			cpus = append(cpus, c)
		}
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs")
	}
	var a affinity
	check := func(what string, want ...int) {
		t.Helper()
		got, err := a.get()
		if err != nil {
			t.Fatal(err)
		}
		var set unix.CPUSet
		for _, c := range want {
			set.Set(c)
		}
		if got != set {
			t.Errorf("%s: the thread may run on %v, want %v", what, got, want)
		}
	}
	pin := func(cpu int, want bool) {
		t.Helper()
		if got := a.pin(cpu); got != want {
			t.Errorf("pinned to %d: %v, want %v", cpu, got, want)
		}
	}
	pin(cpus[1], true)
	check("pinned", cpus[1])
	pin(cpus[0], true)
	check("pinned elsewhere", cpus[0])
	a.release()
	check("released", cpus...)
	pin(1023, mine.IsSet(1023))
	a.release()
	check("pinned where it may not run", cpus...)

	pin(cpus[0], true)
	var theirs unix.CPUSet
	theirs.Set(cpus[1])
	if err := unix.SchedSetaffinity(0, &theirs); err != nil {
		t.Fatal(err)
	}
	pin(cpus[0], false)
	a.release()
	check("moved by somebody else", cpus[1])
	pin(cpus[1], true)
	a.release()
	check("kept where somebody else wants it", cpus[1])
}

// The follower is told what was read from the device, and the loop wakes when the follower is due.
func TestFollowerIsAsked(t *testing.T) {
	i, d := handDriven(t)
	c := newCrossing()
	i[0].follower = c.follower
	d[0].packet, d[0].left = make([]byte, 1000), 3 // which are dropped
	if i[0].pollDevice(64); c.bytes != 3000 {
		t.Errorf("%d bytes were read, want 3000", c.bytes)
	}
	now := i[0].clock() + time.Minute
	if i[0].advance(now); c.looked != now {
		t.Errorf("it looked at %v, want %v", c.looked, now)
	}
	c.pinned, c.until = 0, now+time.Microsecond
	if wait, ok := i[0].next(now); !ok || wait > time.Microsecond {
		t.Errorf("due in %v, %v", wait, ok)
	}
}

// The state names the CPU that the loop follows, or says why it follows none.
func TestFollowState(t *testing.T) {
	simulate(t, 1, nil, func(r *rig) {
		if got := r.n[0].Snapshot().NAPI.Follow; got.CPU != noCPU || !strings.Contains(got.Off, "does not know") {
			t.Errorf("of a device that is no TUN: %+v", got)
		}
	})
	for _, stay := range []bool{false, true} {
		ns := netns.New(t)
		dev, err := device.Open(device.Config{Name: "exn0", Namespace: ns.String()})
		if err != nil {
			t.Fatal(err)
		}
		defer dev.Close()
		node, err := shm.Attach(shm.Config{Dir: t.TempDir() + "/fabric", Node: 1})
		if err != nil {
			t.Fatal(err)
		}
		defer node.Close()
		i, err := Open(Config{Node: node, Stay: stay}, dev)
		if err != nil {
			t.Fatal(err)
		}
		over := make(chan error, 1)
		go func() { over <- i.Run(t.Context()) }()
		<-i.Ready()
		got, want := i.Snapshot().NAPI.Follow, ""
		if stay {
			want = "it is switched off"
		}
		if strings.HasPrefix(got.Off, "bpf: ") {
			t.Skipf("the kernel does not let us load a BPF program, as in a container: %s", got.Off)
		}
		if got.CPU != noCPU || got.Off != want {
			t.Errorf("Stay %v: %+v, want %q", stay, got, want)
		}
		asking := make(chan struct{})
		go func() { // also while Run ends
			defer close(asking)
			for len(over) == 0 {
				i.Snapshot()
			}
		}()
		_ = i.Close()
		<-asking
		<-over
		if got := i.Snapshot().NAPI.Follow; got.CPU != noCPU || got.Off == "" {
			t.Errorf("of an interface that is closed: %+v", got)
		}
	}
}
