package ofi

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exnet/fabric"
	"exnet/fabric/fabrictest"
)

func eventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !cond(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s: not after a minute", what)
		}
	}
}

// TestSessionModel: whatever is lost, doubled or late between two numberings,
// what is taken is 1, 2, 3, …, acknowledgements are true, and when the losses
// end everything arrives.
func TestSessionModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type frame struct {
			seq, ack    uint64
			gap, answer bool
		}
		var s [2]session
		var wire [2][]frame // to each
		var next [2]uint64
		deliver := func(i int) {
			f := wire[i][0]
			wire[i] = wire[i][1:]
			from, to, ok := s[i].acknowledge(f.ack)
			if !ok || f.ack > next[1-i] {
				t.Fatalf("side %d: acknowledgement %d of %d taken is a lie", i, f.ack, next[1-i])
			}
			for ; from <= to; from++ {
				if from > next[1-i] {
					t.Fatalf("side %d gives frame %d back, which was not taken", i, from)
				}
			}
			if f.seq == 0 { // an ack
				if f.gap {
					s[i].again()
				}
				return
			}
			if f.answer {
				s[i].probe(f.seq)
				return
			}
			if s[i].arrive(f.seq) == take {
				if next[i]++; next[i] != f.seq {
					t.Fatalf("side %d took %d where %d was due", i, f.seq, next[i])
				}
			}
		}
		post := func(i int) {
			if seq, ok := s[i].due(); ok {
				s[i].post()
				wire[1-i] = append(wire[1-i], frame{seq: seq, ack: s[i].taken})
			}
		}
		ack := func(i int) {
			wire[1-i] = append(wire[1-i], frame{ack: s[i].taken, gap: s[i].gap})
			s[i].told, s[i].gap = s[i].taken, false
		}
		probe := func(i int) {
			if s[i].posted > 0 {
				wire[1-i] = append(wire[1-i], frame{seq: s[i].posted, ack: s[i].taken, answer: true})
			}
		}
		side := rapid.IntRange(0, 1)
		for range rapid.IntRange(0, 300).Draw(t, "steps") {
			i := side.Draw(t, "side")
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0, 1, 2:
				if s[i].room(0) {
					s[i].seal()
				}
			case 3, 4:
				post(i)
			case 5, 6:
				if len(wire[i]) > 0 {
					deliver(i)
				}
			case 7:
				ack(i)
			case 8:
				probe(i)
			case 9:
				wire[i] = nil // connected again
				if k := len(wire[1-i]); k > 0 {
					wire[1-i] = append(wire[1-i], wire[1-i][rapid.IntRange(0, k-1).Draw(t, "which")])
				}
			}
			if s[i].sealed-s[i].acked > sessionWindow {
				t.Fatalf("%d frames in a window of %d", s[i].sealed-s[i].acked, sessionWindow)
			}
		}
		for range 1000 {
			for i := range s {
				post(i)
				probe(i)
				for len(wire[1-i]) > 0 {
					deliver(1 - i)
				}
				ack(1 - i)
				for len(wire[i]) > 0 {
					deliver(i)
				}
			}
		}
		for i := range s {
			if s[i].acked != s[i].sealed || next[1-i] != s[i].sealed {
				t.Fatalf("side %d sealed %d, %d were taken, %d acknowledged", i, s[i].sealed, next[1-i], s[i].acked)
			}
		}
	})
}

// TestConformanceOfModel runs the suite over the network of the tests: sound,
// and losing connections all the time.
func TestConformanceOfModel(t *testing.T) {
	for name, faults := range map[string]func(*network){
		"sound":             func(*network) {},
		"connections break": func(w *network) { w.loses, w.doubles = 0.005, 0.01 },
	} {
		t.Run(name, func(t *testing.T) {
			skip := map[string]string{}
			if name != "sound" {
				if testing.Short() {
					t.Skip("repairs take their time")
				}
				skip["NET-8 a sound network counts no errors"] = "the repairs are there to be counted"
			}
			fabrictest.Run(t, fabrictest.Harness{
				Skip:      skip,
				Allocates: "the network of the tests does",
				Fabric: func(t *testing.T) fabrictest.Attach {
					w := newNetwork(1)
					faults(w)
					var all []Member
					for i, id := range []fabric.NodeID{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, fabric.MaxNodeID} {
						all = append(all, Member{id, netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:1", i+1))})
					}
					return func(id fabric.NodeID) (fabric.Node, error) { return w.pick(t, all, id) }
				},
			})
		})
	}
}

// pick attaches under an ID, or the lowest that is free.
func (w *network) pick(t *testing.T, all []Member, id fabric.NodeID) (fabric.Node, error) {
	for _, m := range all {
		if id != fabric.NodeAny && m.ID != id {
			continue
		}
		w.mu.Lock()
		e := w.ends[m.Address]
		free := e == nil || e.closed
		w.mu.Unlock()
		if free {
			n := w.attach(t, Config{Node: m.ID, Members: all})
			others := 0
			w.set(func(w *network) {
				for _, e := range w.ends {
					if !e.closed && e.at != m.Address {
						others++
					}
				}
			})
			eventually(t, "it knows those that were there", func() bool { return len(n.Peers()) == others })
			return n, nil
		}
	}
	return nil, fabric.ErrInUse
}

// A talk is numbered messages and PUTs from one node to another.
type talk struct {
	from, to *Node
	va, vb   fabric.VELO
	ra, rb   fabric.RMA
	src, dst fabric.Memory
	local    fabric.NLA
	remote   fabric.NLA
}

func newTalk(t *testing.T, from, to *Node) *talk {
	t.Helper()
	k := &talk{from: from, to: to}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var err error
	k.va, err = from.OpenVELO(1, fabric.PortInterrupts{})
	check(err)
	k.vb, err = to.OpenVELO(1, fabric.PortInterrupts{})
	check(err)
	k.ra, err = from.OpenRMA(1, fabric.PortInterrupts{})
	check(err)
	k.rb, err = to.OpenRMA(1, fabric.PortInterrupts{})
	check(err)
	const size = 1 << 18
	k.src, err = from.Alloc(size, 0)
	check(err)
	k.dst, err = to.Alloc(size, fabric.RemoteWrite)
	check(err)
	w, err := k.ra.Register(k.src, fabric.WindowSpec{Length: size})
	check(err)
	k.local = w.NLA()
	w, err = k.rb.Register(k.dst, fabric.WindowSpec{Length: size, Rights: fabric.RemoteWrite})
	check(err)
	k.remote = w.NLA()
	return k
}

// run sends so many messages and PUTs, while breaking() does its worst, and
// checks at the other end that their numbers rise, with no gap unless a session
// ended. It returns how many arrived.
func (k *talk) run(t *testing.T, count int, gaps bool) (arrived int) {
	t.Helper()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		rng := rand.New(rand.NewPCG(1, 1))
		var notes [16]fabric.Notification
		for i := 0; i < count; {
			var b [64]byte
			binary.LittleEndian.PutUint64(b[:], uint64(i))
			err := k.va.Send(fabric.VELODescriptor{To: k.vb.Address(), After: i%3 == 0}, b[:8+rng.IntN(56)])
			switch {
			case err == nil:
				i++
			case errors.Is(err, fabric.ErrFull):
				time.Sleep(50 * time.Microsecond)
			case gaps && errors.Is(err, fabric.ErrNoNode):
				time.Sleep(time.Millisecond)
			default:
				t.Error(err)
				return
			}
			if i%10 == 0 {
				k.ra.Post(&fabric.RMADescriptor{Command: fabric.Put, Mask: fabric.NotifyRequester, To: k.rb.Address(), Length: 1 + rng.IntN(1<<17), Local: k.local, Remote: k.remote})
			}
			for _, n := range notes[:k.ra.Poll(notes[:])] {
				if n.Fault != fabric.FaultNone && !gaps {
					t.Errorf("a PUT ended with %v", n.Fault)
				}
			}
		}
		time.AfterFunc(10*time.Second, func() {
			if gaps {
				close(stop)
			}
		})
	})
	next := uint64(0)
	var msgs [32]fabric.Message
	for int(next) < count {
		select {
		case <-stop:
			wg.Wait()
			return arrived
		default:
		}
		got := k.vb.Poll(msgs[:])
		if got == 0 {
			time.Sleep(50 * time.Microsecond)
		}
		for i := range got {
			seq := binary.LittleEndian.Uint64(msgs[i].Payload())
			if seq < next || !gaps && seq != next {
				t.Fatalf("message %d where %d was due", seq, next)
			}
			next = seq + 1
			arrived++
		}
		if t.Failed() {
			break
		}
	}
	wg.Wait()
	return arrived
}

// TestBrokenConnections: a provider that loses what it had accepted and
// connects again without a word is not noticed by anybody.
func TestBrokenConnections(t *testing.T) {
	w := newNetwork(7)
	n := w.nodes(t, 2, Config{})
	k := newTalk(t, n[0], n[1])
	copy(k.src.Bytes(), bytes.Repeat([]byte("data"), 1000))
	w.set(func(w *network) { w.loses, w.doubles = 0.01, 0.02 })
	k.run(t, 20000, false)
	lost := 0
	w.set(func(w *network) { lost = w.lost })
	if lost == 0 {
		t.Error("the network lost nothing: the test shows nothing")
	}
	for _, n := range n {
		if v, _ := n.ReadRegister(fabric.RegPeersLost); v != 0 {
			t.Errorf("node %d lost %d peers", n.ID(), v)
		}
	}
	if !bytes.HasPrefix(k.dst.Bytes(), []byte("datadata")) {
		t.Error("no PUT arrived")
	}
}

// TestFailedRMA: an operation that failed may be done or not, so the session
// ends as the death of the peer, and a new one begins. Numbers never go back.
func TestFailedRMA(t *testing.T) {
	w := newNetwork(8)
	n := w.nodes(t, 2, Config{})
	k := newTalk(t, n[0], n[1])
	w.set(func(w *network) { w.fails = 0.02 })
	if arrived := k.run(t, 3000, true); arrived == 0 {
		t.Error("nothing arrived")
	}
	if v, _ := n[0].ReadRegister(fabric.RegPeersLost); v == 0 {
		t.Error("no session ended")
	}
	w.set(func(w *network) { w.fails = 0 })
	eventually(t, "they know each other again", func() bool { return len(n[0].Peers()) == 1 && len(n[1].Peers()) == 1 })
}

// TestSilence: a peer that is silent for longer than the timeout ends, once;
// others do not notice. When it is back there is a new session.
func TestSilence(t *testing.T) {
	w := newNetwork(9)
	n := w.nodes(t, 3, Config{Timeout: 1500 * time.Millisecond})
	k := newTalk(t, n[0], n[1])
	var mu sync.Mutex
	events := map[fabric.NodeID][]fabric.Event{}
	for _, n := range n {
		defer n.Watch(func(e fabric.Event) {
			mu.Lock()
			defer mu.Unlock()
			events[n.ID()] = append(events[n.ID()], e)
		})()
	}
	apart := func(a, b netip.AddrPort) bool {
		third := netip.MustParseAddrPort("10.0.0.3:1")
		return a != third && b != third
	}
	w.set(func(w *network) { w.cut = apart })
	if err := k.ra.Post(&fabric.RMADescriptor{Command: fabric.Put, Mask: fabric.NotifyRequester, To: k.rb.Address(), Length: 100, Local: k.local, Remote: k.remote}); err != nil {
		t.Fatal(err)
	}
	var notes [4]fabric.Notification
	got := 0
	eventually(t, "the operation under way ends", func() bool { got += k.ra.Poll(notes[got:]); return got > 0 })
	if notes[0].Fault != fabric.FaultLink {
		t.Errorf("an operation under way to a peer that is silent ends with %v", notes[0].Fault)
	}
	eventually(t, "both have noticed", func() bool { return len(n[0].Peers()) == 1 && len(n[1].Peers()) == 1 })
	if err := k.va.Send(fabric.VELODescriptor{To: k.vb.Address()}, []byte{1}); !errors.Is(err, fabric.ErrNoNode) {
		t.Errorf("send to the dead: %v", err)
	}
	k.ra.Post(&fabric.RMADescriptor{Command: fabric.Put, To: k.rb.Address(), Length: 100, Local: k.local, Remote: k.remote})
	if k.ra.Poll(notes[:]) != 1 || notes[0].Fault != fabric.FaultNode {
		t.Errorf("an operation that had not begun ends with %v", notes[0].Fault)
	}
	w.set(func(w *network) { w.cut = func(netip.AddrPort, netip.AddrPort) bool { return false } })
	eventually(t, "they meet again", func() bool { return len(n[0].Peers()) == 2 && len(n[1].Peers()) == 2 })
	k.run(t, 100, false)
	mu.Lock()
	defer mu.Unlock()
	if len(events[3]) != 0 {
		t.Errorf("node 3 saw %v", events[3])
	}
	for _, id := range []fabric.NodeID{1, 2} {
		if e := events[id]; len(e) < 2 || e[0].Joined || !e[0].Crashed || !e[len(e)-1].Joined {
			t.Errorf("node %d saw %v", id, e)
		}
	}
}
