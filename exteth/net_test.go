package exteth

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"go.uber.org/goleak"

	"exnet/arp"
	"exnet/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A net is a set of engines on doubles, with what they received.
type net struct {
	t   testing.TB
	w   *wire
	e   []*Engine
	got [][]received
	now time.Duration
}

type received struct {
	from fabric.NodeID
	data []byte
	vnet VNet
}

// newNet starts n engines. set adjusts their nodes and configurations first.
func newNet(t testing.TB, n int, set func(i int, d *double, c *Config)) *net {
	s := &net{t: t, w: newWire(n), got: make([][]received, n)}
	for i, d := range s.w.nodes {
		cfg := Config{Instance: uint64(i) + 1, Caps: CapAll}
		if set != nil {
			set(i, d, &cfg)
		}
		if cfg.Receive == nil {
			cfg.Receive = func(f *Frame) error {
				if !bytes.Equal(f.Header[:], f.Data[:14]) {
					t.Error("the header differs from the data")
				}
				s.got[i] = append(s.got[i], received{f.From, bytes.Clone(f.Data), f.VNet})
				return nil
			}
		}
		s.e = append(s.e, newEngine(t, d, cfg))
	}
	s.run()
	return s
}

// run polls all engines until nothing happens any more.
func (s *net) run() {
	more := true                      // earlier polls may have left interrupts due
	for idle := 0; idle < 2; idle++ { // what one engine does last, another may have to answer
		work, all := 0, false
		for _, e := range s.e {
			v, _ := e.PollVELO(s.now, 64)
			all = all || v == 64
			s.told(more || all)
			r, _ := e.PollRMA(s.now, 64)
			s.told(more || all)
			work += v + r
			e.Advance(s.now)
			s.told(more || all)
		}
		if more = all; work > 0 {
			idle = 0
		}
	}
}

// told checks that no sender sleeps while its buffers are free. A few interrupts may be due while
// there is more to poll.
func (s *net) told(more bool) {
	s.t.Helper()
	most := 0
	if more {
		most = tellEvery - 1
	}
	for _, d := range s.w.nodes {
		if d.untold > most {
			s.t.Errorf("node %d was not told of %d frames that were fetched", d.id, d.untold)
		}
	}
}

// ethernet builds a frame of n bytes from node i whose contents depend on seed.
func ethernet(to arp.MAC, from int, n int, seed int) []byte {
	f := make([]byte, n)
	for i := range f {
		f[i] = byte(i*7 + seed*31 + i>>8)
	}
	copy(f, to[:])
	m := arp.DefaultPrefix.MAC(fabric.NodeID(from))
	copy(f[6:], m[:])
	binary.BigEndian.PutUint16(f[12:], 0x88b5) // local experimental EtherType
	return f
}

func node(i int) arp.MAC { return arp.DefaultPrefix.MAC(fabric.NodeID(i)) }

// send sends a copy of a frame and returns Send's error.
func (s *net) send(from int, frame []byte, v VNet) error {
	s.t.Helper()
	b := s.e[from].Borrow()
	if b == nil {
		s.t.Fatal("no buffer")
	}
	copy(b.Bytes[50:], frame)
	return s.e[from].Send(b, 50, len(frame), v, s.now)
}

func (s *net) mustSend(from int, frame []byte, v VNet) {
	s.t.Helper()
	if err := s.send(from, frame, v); err != nil {
		s.t.Fatal(err)
	}
}

// want checks counters of one engine.
func (s *net) want(i int, want map[Counter]uint64) {
	s.t.Helper()
	for c, n := range want {
		if got := s.e[i].stats.Get(c); got != n {
			s.t.Errorf("node %d: %v = %d, want %d", i, c, got, n)
		}
	}
}

// idle checks that nothing is held: all buffers are free, and no notification is expected.
func (s *net) idle() {
	s.t.Helper()
	for i, e := range s.e {
		if len(e.tx.free) != e.cfg.Buffers || e.sent.expecting() != 0 || e.gets.expecting() != 0 || e.active != 0 || len(e.busy) != 0 || e.multicastWaiting != 0 {
			s.t.Errorf("node %d holds %d buffers, %d adverts, %d GETs, %d active, %d busy, %d multicast", i, e.cfg.Buffers-len(e.tx.free),
				e.sent.expecting(), e.gets.expecting(), e.active, len(e.busy), e.multicastWaiting)
		}
		if e.sinks != nil && len(e.sinks.free) != e.cfg.Buffers {
			s.t.Errorf("node %d holds %d sinks", i, e.cfg.Buffers-len(e.sinks.free))
		}
		if _, ok := e.Next(s.now); ok {
			s.t.Errorf("node %d waits for something", i)
		}
	}
}

var modes = map[string]func(int, *double, *Config){
	"copy":   func(_ int, d *double, _ *Config) {},
	"mapped": func(_ int, d *double, _ *Config) { d.mapped = true },
	"split":  func(_ int, d *double, _ *Config) { d.mapped, d.split = true, true },
	"mapped, copying": func(_ int, d *double, c *Config) {
		d.mapped, c.Copy = true, true
	},
}
