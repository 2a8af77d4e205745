package exteth

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exnet/fabric"
)

// MAT-1, MAT-3: the last packet is where the specification's examples say.
func TestMAT3LastPacket(t *testing.T) {
	for n, rest := range map[int]int{1: 1, 495: 495, 496: 496, 497: 1, 992: 496, 1514: 26, 9014: 86, 65549: 77, 65550: 78, 8388608: 256} {
		const start = 0x1000
		if got := fabric.LastPacket(start, n); got != start+fabric.NLA(n-rest) {
			t.Errorf("%d bytes: last packet at +%d, want +%d", n, got-start, n-rest)
		}
	}
}

// MAT-2: the matcher behaves like the lists of a simple model: FIFO for equal keys, early
// notifications parked and bounded, time-outs by age.
func TestMAT2Properties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room, park = 8, 3
		m := newMatcher[int](room, park)
		type entry struct {
			key      matchKey
			value    int
			deadline time.Duration
		}
		var expected []entry
		var parked []matchKey
		var now time.Duration
		next := 0
		keys := rapid.Custom(func(t *rapid.T) matchKey {
			return matchKey{fabric.Kind(rapid.IntRange(2, 3).Draw(t, "kind")), fabric.NodeID(rapid.IntRange(0, 1).Draw(t, "peer")), fabric.NLA(rapid.IntRange(0, 2).Draw(t, "local"))}
		})
		find := func(k matchKey) int {
			return slices.IndexFunc(expected, func(e entry) bool { return e.key == k })
		}
		t.Repeat(map[string]func(*rapid.T){
			"expect": func(t *rapid.T) {
				if m.room() != (len(expected) < room) {
					t.Fatalf("room %v with %d expected", m.room(), len(expected))
				}
				if !m.room() {
					return
				}
				k := keys.Draw(t, "key")
				next++
				early := m.expect(k, next, now+100)
				i := slices.Index(parked, k)
				if early != (i >= 0) {
					t.Fatalf("early %v, parked %v", early, parked)
				}
				if early {
					parked = slices.Delete(parked, i, i+1)
				} else {
					expected = append(expected, entry{k, next, now + 100})
				}
			},
			"notify": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				v, ok, forgot := m.notify(k, now)
				i := find(k)
				if ok != (i >= 0) || ok && v != expected[i].value {
					t.Fatalf("got %d, %v", v, ok)
				}
				if ok {
					expected = slices.Delete(expected, i, i+1)
					return
				}
				if forgot != (len(parked) == park) {
					t.Fatalf("forgot %v with %d parked", forgot, len(parked))
				}
				if forgot {
					parked = parked[1:]
				}
				parked = append(parked, k)
			},
			"take": func(t *rapid.T) {
				k := keys.Draw(t, "key")
				v, ok := m.take(k)
				i := find(k)
				if ok != (i >= 0) || ok && v != expected[i].value {
					t.Fatalf("got %d, %v", v, ok)
				}
				if ok {
					expected = slices.Delete(expected, i, i+1)
				}
			},
			"take peer": func(t *rapid.T) {
				p := fabric.NodeID(rapid.IntRange(0, 1).Draw(t, "peer"))
				k, v, ok := m.takePeer(p)
				i := slices.IndexFunc(expected, func(e entry) bool { return e.key.peer == p })
				if ok != (i >= 0) || ok && (v != expected[i].value || k != expected[i].key) {
					t.Fatalf("got %d, %v", v, ok)
				}
				if ok {
					expected = slices.Delete(expected, i, i+1)
				}
			},
			"expire": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 60).Draw(t, "time"))
				for {
					k, v, ok := m.expire(now)
					due := len(expected) > 0 && expected[0].deadline <= now
					if ok != due || ok && (v != expected[0].value || k != expected[0].key) {
						t.Fatalf("expired %d, %v at %v", v, ok, now)
					}
					if !ok {
						return
					}
					expected = expected[1:]
				}
			},
			"": func(t *rapid.T) {
				if m.expecting() != len(expected) || m.parked.n != len(parked) {
					t.Fatalf("%d expected, %d parked; want %d, %d", m.expecting(), m.parked.n, len(expected), len(parked))
				}
				at, ok := m.next()
				if ok != (len(expected) > 0) || ok && at != expected[0].deadline {
					t.Fatalf("next %v, %v", at, ok)
				}
			},
		})
	})
}

// MAT-2: a frame whose notification came early is done at once.
func TestMAT2EarlyNotification(t *testing.T) {
	s := newNet(t, 2, nil)
	b := s.e[0].Borrow()
	a := b.nla(0)
	s.w.nodes[0].notes = append(s.w.nodes[0].notes, fabric.Notification{Command: fabric.Get, Kind: fabric.KindResponder, Peer: fabric.Address{Node: 1}, Local: fabric.LastPacket(a, 1000), Count: 1000})
	s.e[0].PollRMA(0, 64)
	s.want(0, map[Counter]uint64{RXEarly: 1})
	copy(b.Bytes, ethernet(node(1), 0, 1000, 1))
	if err := s.e[0].Send(b, 0, 1000, VNet{}, 0); err != nil {
		t.Fatal(err)
	}
	if s.e[0].sent.expecting() != 0 || len(s.e[0].tx.free) != DefaultBuffers {
		t.Error("a parked notification did not end its transfer")
	}
}

func TestMatcherAllocates(t *testing.T) {
	m := newMatcher[sentFrame](64, 64)
	i := fabric.NLA(0)
	if n := testing.AllocsPerRun(1000, func() {
		k := matchKey{fabric.KindResponder, 1, i * 4096}
		m.expect(k, sentFrame{}, 0)
		m.notify(k, 0)
		m.notify(k, 0)
		i++
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
