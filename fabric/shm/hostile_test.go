package shm

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A victim is a node that receives numbered messages from an honest process
// while others misbehave.
type victim struct {
	tb   testing.TB
	n    *Node
	dir  string
	velo fabric.VELO
	rma  fabric.RMA
	win  fabric.Window
	got  atomic.Uint64 // messages from the honest sender, all in order
	stop atomic.Bool
	done chan struct{}
	irq  fabric.Interrupt

	honest *process
}

const honestNode fabric.NodeID = 9

// newVictim starts the honest node too, in a process that prepare may change.
func newVictim(t *testing.T, prepare func(*exec.Cmd)) *victim {
	t.Helper()
	v := &victim{tb: t, dir: fabricDir(t), done: make(chan struct{})}
	v.n = attach(t, v.dir, 0)
	var err error
	if v.irq, err = v.n.NewInterrupt(); err != nil {
		t.Fatal(err)
	}
	both := fabric.PortInterrupts{Receive: v.irq, Transmit: v.irq}
	v.velo = openVELO(t, v.n, 1, both)
	if v.rma, err = v.n.OpenRMA(1, both); err != nil {
		t.Fatal(err)
	}
	v.win = openWindow(t, v.n, v.rma, 1<<20, fabric.RemoteRead|fabric.RemoteWrite)
	go v.run()
	t.Cleanup(func() { v.stop.Store(true); v.irq.Wake(); <-v.done })
	v.honest = start(t, prepare, "flood", v.dir, fmt.Sprint(honestNode))
	if line := v.honest.line(); line != "ready" {
		t.Fatal("the honest node: ", line)
	}
	return v
}

func openWindow(tb testing.TB, n *Node, p fabric.RMA, size int, r fabric.Rights) fabric.Window {
	tb.Helper()
	m, err := n.Alloc(size, r)
	if err != nil {
		tb.Fatal(err)
	}
	w, err := p.Register(m, fabric.WindowSpec{Rights: r, Length: size})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		w.Deregister()
		<-w.Released()
		if err := m.Free(); err != nil {
			tb.Error(err)
		}
	})
	return w
}

// run polls, answers everybody on VELO port 2 and GETs from their windows when
// they send an NLA.
func (v *victim) run() {
	defer close(v.done)
	msgs := make([]fabric.Message, 64)
	notes := make([]fabric.Notification, 64)
	for !v.stop.Load() {
		n := v.velo.Poll(msgs)
		for i := range msgs[:n] {
			v.message(&msgs[i])
		}
		if n+v.rma.Poll(notes) == 0 && v.irq.Arm() {
			v.irq.Wait(100 * time.Millisecond)
		}
	}
}

func (v *victim) message(m *fabric.Message) {
	from := m.Status.Source()
	if from.Node == honestNode {
		if n := binary.LittleEndian.Uint64(m.Payload()); n != v.got.Load() {
			v.tb.Errorf("message %d from the honest node arrives as number %d", n, v.got.Load())
			v.stop.Store(true)
		}
		v.got.Add(1)
		return
	}
	v.velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: from.Node, VPID: 2}}, m.Payload())
	if len(m.Payload()) >= 8 {
		nla := fabric.NLA(binary.LittleEndian.Uint64(m.Payload()))
		for _, c := range []fabric.Command{fabric.Get, fabric.Put} {
			v.rma.Post(&fabric.RMADescriptor{Command: c, Mask: 7, To: fabric.Address{Node: from.Node, VPID: 2}, Length: 4096, Local: v.win.NLA(), Remote: nla})
		}
	}
}

// alive checks that honest traffic goes on.
func (v *victim) alive() {
	v.tb.Helper()
	before := v.got.Load()
	eventually(v.tb, "honest messages go on", func() bool { return v.got.Load() > before+100 })
}

// flood is the honest sender.
func flood(args []string) {
	id, _ := strconv.Atoi(args[1])
	n, err := Attach(Config{Dir: args[0], Node: fabric.NodeID(id)})
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	irq, _ := n.NewInterrupt()
	p, _ := n.OpenVELO(0, fabric.PortInterrupts{Transmit: irq})
	fmt.Println("ready")
	var b [8]byte
	for i := uint64(0); ; {
		binary.LittleEndian.PutUint64(b[:], i)
		switch err := p.Send(fabric.VELODescriptor{To: fabric.Address{Node: 0, VPID: 1}}, b[:]); err {
		case nil:
			if i++; i%64 == 0 {
				time.Sleep(100 * time.Microsecond) // leave the machine to the tests
			}
		case fabric.ErrFull:
			if irq.Arm() {
				irq.Wait(time.Second)
			}
		default:
			return
		}
	}
}

// An enemy is a node whose regions the test scribbles into.
type enemy struct {
	*Node
	ch   *channel // to the victim
	tx   region   // our side of it
	velo fabric.VELO
	rma  fabric.RMA
	win  fabric.Window
}

func newEnemy(tb testing.TB, dir string) *enemy {
	n := attach(tb, dir, fabric.NodeAny)
	e := &enemy{Node: n, velo: openVELO(tb, n, 2, fabric.PortInterrupts{})}
	var err error
	if e.rma, err = n.OpenRMA(2, fabric.PortInterrupts{}); err != nil {
		tb.Fatal(err)
	}
	e.win = openWindow(tb, n, e.rma, 1<<16, fabric.RemoteRead|fabric.RemoteWrite)
	e.greet()
	eventually(tb, "the victim answers", func() bool { return e.velo.Poll(make([]fabric.Message, 1)) == 1 })
	n.mu.Lock()
	defer n.mu.Unlock()
	e.ch = n.peers[0].channel
	e.tx = e.ch.tx
	return e
}

// greet sends the victim our window's NLA, to which it sends an answer, a GET and a PUT.
func (e *enemy) greet() {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(e.win.NLA()))
	e.velo.Send(fabric.VELODescriptor{To: fabric.Address{Node: 0, VPID: 1}}, b[:])
}

// Each kind of invalid data drops the channel with its own reason, and has no other effect.
func TestHostilePeer(t *testing.T) {
	v := newVictim(t, nil)
	put := func(p *uint64, x uint64) { atomic.StoreUint64(p, x) }
	for name, c := range map[string]struct {
		reason fabric.Register
		do     func(e *enemy)
	}{
		"status length": {fabric.RegDroppedVELO, func(e *enemy) {
			f := e.ch.txFlows[makeFlowWord(fabric.UnitVELO, 2, 1)]
			put(&f.next().status, uint64(fabric.MakeStatus(e.velo.Address(), fabric.VELODescriptor{}, 121, parity(f.tail))))
		}},
		"status length 0": {fabric.RegDroppedVELO, func(e *enemy) {
			f := e.ch.txFlows[makeFlowWord(fabric.UnitVELO, 2, 1)]
			put(&f.next().status, uint64(fabric.MakeStatus(e.velo.Address(), fabric.VELODescriptor{}, 0, parity(f.tail))))
		}},
		"status source": {fabric.RegDroppedVELO, func(e *enemy) {
			f := e.ch.txFlows[makeFlowWord(fabric.UnitVELO, 2, 1)]
			put(&f.next().status, uint64(fabric.MakeStatus(fabric.Address{Node: honestNode, VPID: 2}, fabric.VELODescriptor{}, 8, parity(f.tail))))
		}},
		"notification": {fabric.RegDroppedRMA, func(e *enemy) {
			f, err := e.openFlow(fabric.UnitRMA, 2, fabric.Address{Node: 0, VPID: 1})
			if err != nil {
				t.Fatal(err)
			}
			f.look()
			f.publish(f.next(), e.rma.Address(), &fabric.VELODescriptor{}, 16)
		}},
		"notification peer": {fabric.RegDroppedRMA, func(e *enemy) {
			f, _ := e.openFlow(fabric.UnitRMA, 2, fabric.Address{Node: 0, VPID: 1})
			n := fabric.Notification{Command: fabric.Put, Kind: fabric.KindCompleter, Peer: fabric.Address{Node: honestNode, VPID: 2}, Count: 1}
			w := n.Encode()
			binary.LittleEndian.PutUint64(f.next().data[:], w[0])
			f.look()
			f.publish(f.next(), e.rma.Address(), &fabric.VELODescriptor{}, 16)
		}},
		"credit": {fabric.RegDroppedCredit, func(e *enemy) {
			for i := 1; i < maxFlows; i++ {
				put(e.tx.credit(i), 1<<40)
			}
			for range 2 * flowSlots { // the victim answers until it looks at the credit
				e.greet()
				time.Sleep(time.Microsecond)
			}
		}},
		"flow count":     {fabric.RegDroppedFlow, func(e *enemy) { put(e.tx.flowCount(), maxFlows) }},
		"flow count low": {fabric.RegDroppedFlow, func(e *enemy) { put(e.tx.flowCount(), 0) }},
		"flow word": {fabric.RegDroppedFlow, func(e *enemy) {
			n := len(e.ch.txFlows) + 1
			put(e.tx.flowWord(n), ^uint64(0))
			put(e.tx.flowCount(), uint64(n))
		}},
		"flow twice": {fabric.RegDroppedFlow, func(e *enemy) {
			n := len(e.ch.txFlows) + 1
			put(e.tx.flowWord(n), uint64(makeFlowWord(fabric.UnitVELO, 2, 1)))
			put(e.tx.flowCount(), uint64(n))
		}},
		"endless rings": {fabric.RegDroppedDoorbell, func(e *enemy) {
			eventually(t, "the doorbell has come", func() bool { e.ch.doorMu.Lock(); defer e.ch.doorMu.Unlock(); return e.ch.doors[0] != 0 })
			e.ch.doorMu.Lock()
			door, _ := unix.Dup(e.ch.doors[0])
			e.ch.doorMu.Unlock()
			defer unix.Close(door)
			for e.Peers() != nil && len(e.Peers()) == 2 {
				ringEventfd(door)
				time.Sleep(time.Microsecond)
			}
		}},
		"message":             {fabric.RegDroppedControl, func(e *enemy) { e.ch.peer.send(message{kind: msgEnd}, -1) }},
		"descriptor missing":  {fabric.RegDroppedControl, func(e *enemy) { e.ch.peer.send(message{kind: msgChannel}, -1) }},
		"descriptor too many": {fabric.RegDroppedControl, func(e *enemy) { e.ch.peer.send(message{kind: msgRing}, e.region.fd) }},
		"second channel":      {fabric.RegDroppedControl, func(e *enemy) { e.ch.peer.send(message{kind: msgChannel}, e.tx.fd) }},
		"second doorbell": {fabric.RegDroppedControl, func(e *enemy) {
			fd, _ := newDoorbell()
			defer unix.Close(fd)
			for range 2 {
				e.ch.peer.send(message{kind: msgDoorbell, a: 5}, fd)
			}
		}},
		"doorbell that can block": {fabric.RegDroppedControl, func(e *enemy) {
			var pipe [2]int
			if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
				t.Fatal(err)
			}
			defer unix.Close(pipe[0])
			defer unix.Close(pipe[1])
			e.ch.peer.send(message{kind: msgDoorbell, a: 5}, pipe[1])
		}},
		"answer unasked": {fabric.RegDroppedControl, func(e *enemy) { e.ch.peer.send(message{kind: msgImported, c: 77, d: 4096}, e.region.fd) }},
		"flood of messages": {fabric.RegDroppedControl, func(e *enemy) {
			for len(e.Peers()) == 2 {
				e.ch.peer.send(message{kind: msgRing}, -1)
				if e.ch.peer.backlog() > maxQueue/2 {
					time.Sleep(100 * time.Microsecond)
				}
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := register(t, v.n, c.reason)
			e := newEnemy(t, v.dir)
			c.do(e)
			eventually(t, "the enemy is dropped", func() bool { return len(v.n.Peers()) == 1 })
			if got := register(t, v.n, c.reason); got != before+1 {
				t.Errorf("%v went from %d to %d, want one more", c.reason, before, got)
			}
			v.alive()
			e.Close()
		})
	}
}

func (p *peer) backlog() int {
	p.sendMu.Lock()
	defer p.sendMu.Unlock()
	return len(p.queue)
}

// Regions that could be truncated, or have another size, are refused.
func TestHostileRegion(t *testing.T) {
	v := newVictim(t, nil)
	unsealed, err := unix.MemfdCreate("exnet-test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(unsealed)
	if err := unix.Ftruncate(unsealed, channelSize); err != nil {
		t.Fatal(err)
	}
	small, err := newMemfd("exnet-test", 4096, false)
	if err != nil {
		t.Fatal(err)
	}
	defer small.unmap()
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := file.Truncate(channelSize); err != nil {
		t.Fatal(err)
	}
	for name, fd := range map[string]int{"unsealed": unsealed, "small": small.fd, "file": int(file.Fd())} {
		t.Run(name, func(t *testing.T) {
			before := register(t, v.n, fabric.RegDroppedControl)
			e := attach(t, v.dir, fabric.NodeAny)
			e.mu.Lock()
			e.peers[0].send(message{kind: msgChannel}, fd)
			e.mu.Unlock()
			eventually(t, "the enemy is dropped", func() bool { return register(t, v.n, fabric.RegDroppedControl) == before+1 })
			v.alive()
		})
	}
	// The memory of a window: the operation fails, the peer may stay.
	for name, fd := range map[string]int{"unsealed memory": unsealed, "small memory": small.fd} {
		t.Run(name, func(t *testing.T) {
			e := newEnemy(t, v.dir)
			e.win = openWindow(t, e.Node, e.rma, 1<<16, fabric.RemoteRead|fabric.RemoteWrite)
			m := e.win.(*window).mem
			swap := func(to int) (old int) {
				e.mu.Lock()
				defer e.mu.Unlock()
				old, m.m.fd = m.m.fd, to
				return old
			}
			real := swap(fd)
			defer swap(real)
			faults := register(t, v.n, fabric.RegRMAFaults)
			eventually(t, "the victim's operations fail", func() bool {
				e.greet()
				e.velo.Poll(make([]fabric.Message, 64))
				return register(t, v.n, fabric.RegRMAFaults) > faults+1
			})
			v.alive()
		})
	}
}

// A peer that never takes anything stops nobody but itself.
func TestNeverConsumes(t *testing.T) {
	v := newVictim(t, nil)
	e := newEnemy(t, v.dir)
	for range 10 * flowSlots { // the victim answers each; nobody polls the answers
		e.greet()
		time.Sleep(10 * time.Microsecond)
	}
	eventually(t, "the victim's answers no longer fit", func() bool { e.greet(); return register(t, v.n, fabric.RegVELOFull) > 0 })
	v.alive()
}

// Random and adversarial values in every word of an enemy process's regions
// while traffic runs: the victim does not crash, hang, or lose honest traffic.
func TestHostileScribbles(t *testing.T) {
	v := newVictim(t, nil)
	rounds := 12
	if !testing.Short() {
		rounds = 200
	}
	for seed := range rounds {
		quiet := func(cmd *exec.Cmd) { cmd.Stderr = nil } // it may crash by its own doing
		p := start(t, quiet, "evil", v.dir, fmt.Sprint(seed))
		p.line()
		select {
		case <-p.lines: // it ended: dropped, or broken by its own doing
		case <-time.After(150 * time.Millisecond):
		}
		p.kill()
		eventually(t, "the enemy is forgotten", func() bool { return len(v.n.Peers()) == 1 })
		v.alive()
		if t.Failed() {
			t.Fatalf("with seed %d", seed)
		}
	}
	for r := range fabric.RegisterCount {
		if n := register(t, v.n, r); n > 0 && r >= fabric.RegDroppedVELO {
			t.Logf("%v = %d", r, n)
		}
	}
}

// evil runs traffic with the victim and scribbles.
func evil(args []string) {
	defer func() { recover() }() // it breaks itself, too
	seed, _ := strconv.Atoi(args[1])
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	e := newEnemy(&nobody{}, args[0])
	fmt.Println("ready")
	// What is scribbled into: all words in use, weighted towards a few pages.
	regions := []struct {
		r    *region
		size int
	}{{&e.tx, offSlots}, {&e.tx, channelSize}, {&e.region, offATU + 4096}, {&e.region, offCounters}, {&e.tx, 1024}}
	focus := rng.IntN(len(regions) + 1)
	for i := 0; len(e.Peers()) > 0; i++ {
		at := regions[rng.IntN(len(regions))]
		if focus < len(regions) {
			at = regions[focus]
		}
		w := at.r.word(rng.IntN(at.size/8) * 8)
		values := []uint64{0, ^uint64(0), rng.Uint64(), *w + 1, *w ^ 1<<rng.IntN(64), 1 << 63, uint64(rng.IntN(300)), 1<<63 - 1}
		atomic.StoreUint64(w, values[rng.IntN(len(values))])
		if i%4 == 0 {
			func() {
				defer func() { recover() }()
				e.greet()
				e.velo.Poll(make([]fabric.Message, 8))
				e.rma.Poll(make([]fabric.Notification, 8))
			}()
		}
		if i%16 == 0 {
			time.Sleep(time.Microsecond)
		}
	}
}

// nobody is a testing.TB for a role, where a failure ends the process.
type nobody struct{ testing.TB }

func (*nobody) Helper()                      {}
func (*nobody) Cleanup(func())               {}
func (*nobody) Fatal(args ...any)            { panic(fmt.Sprint(args...)) }
func (*nobody) Fatalf(s string, args ...any) { panic(fmt.Sprintf(s, args...)) }
