package exteth

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"pgregory.net/rapid"

	"exnet/arp"
	"exnet/fabric"
)

// RDV-4 and the bounds, against everything a fabric may do. Whatever is delayed, refused or lost,
// each frame arrives at most once, whole, and in order. When all is quiet nothing is held. Without
// faults nothing is lost.
func TestRDV4Properties(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		faulty := rapid.Bool().Draw(rt, "faulty")
		s := newNet(t, 3, func(i int, d *double, c *Config) {
			d.mapped = rapid.Bool().Draw(rt, "mapped")
			d.split = rapid.Bool().Draw(rt, "split")
			c.Copy = rapid.Bool().Draw(rt, "copy")
			c.Buffers = rapid.SampledFrom([]int{4, 16, 64}).Draw(rt, "buffers")
		})
		numbers := [3]uint32{}
		sent := 0
		s.now = time.Second
		send := func(t *rapid.T, from, to, n int) {
			mac := node(to)
			if to == 3 {
				mac = arp.Broadcast
			}
			if s.e[from].Blocked() {
				return
			}
			b := s.e[from].Borrow()
			if b == nil {
				return
			}
			numbers[from]++
			f := ethernet(mac, from, n, int(numbers[from]))
			binary.BigEndian.PutUint32(f[14:], numbers[from])
			copy(b.Bytes[50:], f)
			err := s.e[from].Send(b, 50, n, VNet{}, s.now)
			if err != nil && err != ErrDropped {
				t.Fatal(err)
			}
			sent++
		}
		nodes := rapid.IntRange(0, 2)
		rt.Repeat(map[string]func(*rapid.T){
			"send": func(t *rapid.T) {
				from := nodes.Draw(t, "from")
				to := rapid.IntRange(0, 3).Filter(func(i int) bool { return i != from }).Draw(t, "to")
				for range rapid.IntRange(1, 12).Draw(t, "frames") {
					send(t, from, to, rapid.SampledFrom([]int{20, 120, 121, 480, 481, 1514, 1515, 9000}).Draw(t, "size"))
				}
			},
			"poll VELO": func(t *rapid.T) { s.e[nodes.Draw(t, "node")].PollVELO(s.now, rapid.IntRange(1, 8).Draw(t, "budget")) },
			"poll RMA":  func(t *rapid.T) { s.e[nodes.Draw(t, "node")].PollRMA(s.now, rapid.IntRange(1, 8).Draw(t, "budget")) },
			"advance":   func(t *rapid.T) { s.e[nodes.Draw(t, "node")].Advance(s.now) },
			"hold":      func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].hold = true },
			"release": func(t *rapid.T) {
				d := s.w.nodes[nodes.Draw(t, "node")]
				d.hold = false
				d.release()
			},
			"small ring": func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].ringSize = 5 },
			"large ring": func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].ringSize = 1000 },
			"few notes":  func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].noteSize = 2 },
			"many notes": func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].noteSize = 1000 },
			"time":       func(t *rapid.T) { s.now += time.Duration(rapid.IntRange(1, 800).Draw(t, "us")) * time.Microsecond },
			"long time": func(t *rapid.T) {
				if faulty {
					s.now += DefaultTimeout
				}
			},
			"lose": func(t *rapid.T) {
				if faulty {
					s.w.nodes[nodes.Draw(t, "node")].loseGroup = 3
				}
			},
			"fail": func(t *rapid.T) {
				if faulty {
					s.w.nodes[nodes.Draw(t, "node")].failGets = fabric.FaultLink
				}
			},
			"mend": func(t *rapid.T) { s.w.nodes[nodes.Draw(t, "node")].failGets = fabric.FaultNone },
		})
		for _, d := range s.w.nodes {
			d.hold, d.failGets, d.ringSize, d.noteSize = false, fabric.FaultNone, 1000, 1000
			d.release()
		}
		s.run()
		if !faulty {
			// Without faults, only waiting can lose a frame.
			for i, e := range s.e {
				for c := range Counters {
					switch f := c.Field(); f {
					case FieldRXErrors, FieldRXFrame, FieldRXOverruns, FieldTXErrors, FieldTXCarrier:
						if c == RXFragmentLost || c == RXReassemblyExpired || c == RXTimeout || c == TXTimeout {
							// a frame that waited too long halfway, or
							// 200 ms that passed in steps
							continue
						}
						if n := e.stats.Get(c); n != 0 {
							rt.Fatalf("node %d: %v = %d without a fault", i, c, n)
						}
					}
				}
			}
		}
		s.now += 2 * DefaultTimeout
		s.run()
		s.idle()
		if t.Failed() {
			rt.Fatal("something is held")
		}
		for to, got := range s.got {
			last := map[[2]int]uint32{}
			for _, r := range got {
				number := binary.BigEndian.Uint32(r.data[14:])
				want := ethernet(arp.MAC(r.data), int(r.from), len(r.data), int(number))
				binary.BigEndian.PutUint32(want[14:], number)
				if !bytes.Equal(r.data, want) {
					rt.Fatalf("node %d: frame %d from %d is damaged", to, number, r.from)
				}
				group := int(r.data[0] & 1) // unicast and broadcast are different flows
				if key := [2]int{int(r.from), group}; number <= last[key] {
					rt.Fatalf("node %d: frame %d from %d after %d", to, number, r.from, last[key])
				} else {
					last[key] = number
				}
			}
		}
	})
}

// Any message, even with a correct header, changes only counters.
func FuzzMessage(f *testing.F) {
	a := advert{source: 4096, length: 1000}
	inPlace := advert{source: 1<<48 | 4096, length: 1000} // in a window that exists
	h := hello{version: Version, mtu: 1500, caps: CapAll, instance: 5}
	n := nack{source: 4096, length: 1000}
	f.Add(uint8(tagGetInfo), uint8(0), false, a.append(nil))
	f.Add(uint8(tagGetInfo), uint8(0), false, inPlace.append(nil))
	f.Add(uint8(tagHello), uint8(0), false, h.append(nil))
	f.Add(uint8(tagGetNack), uint8(0), false, n.append(nil))
	f.Add(uint8(tagFragLast|tagVNet), uint8(0), true, ethernet(node(1), 0, 100, 1))
	f.Fuzz(func(t *testing.T, tag, index uint8, group bool, payload []byte) {
		if len(payload) == 0 || len(payload) > fabric.VELOMaxPayload {
			return
		}
		s := newNet(t, 2, func(i int, d *double, c *Config) { d.mapped, c.Buffers = i == 1, 4 })
		for k := range uint8(3) {
			d := fabric.VELODescriptor{MTT: tag & 15, UserTag: (index + k) & 63}
			st := fabric.MakeStatus(fabric.Address{Node: 0}, d, len(payload), 1)
			if group {
				st |= 1 << 26
			}
			m := fabric.Message{Status: st}
			copy(m.Data[:], payload)
			s.e[1].message(&m, s.now)
		}
		s.e[1].Tell() // as after a PollVELO with budget left
		s.run()
		s.now += 2 * DefaultTimeout
		s.run()
		if s.e[1].gets.expecting() != 0 || s.e[1].peers.get(0).order.n != 0 {
			t.Fatal("something is held")
		}
	})
}
