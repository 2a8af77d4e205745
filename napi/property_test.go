package napi

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestProperties drives the engine with random sources, traffic and time. The watched lines check,
// call by call:
//
//	NAP-1  a source is polled only while its interrupt is masked
//	NAP-1  in NAPI mode it is unmasked only after a poll that found less than its budget
//	NAP-1  sources that used their budget are polled again in the order of their polls
//	NAP-2  each poll gets the source's own budget
//	ITR-1  two interrupts of one source are at least a gap apart
//
// and the machine checks, Turn by Turn:
//
//	NAP-1  each source that used its budget is polled once in the next Turn, or in the
//	       one after if that only gives way
//	NAP-1  before a sleep every source is armed, unless its gap holds it back; then
//	       the sleep ends with the first gap
//	NAP-1  no sleep without limit while work is waiting
//	       no source is armed in a rest
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t)
		t.Repeat(map[string]func(*rapid.T){
			"turn":   func(t *rapid.T) { w.turn(t) },
			"rest":   func(t *rapid.T) { w.rest(t) },
			"arrive": func(t *rapid.T) { w.pick(t).arrive(rapid.IntRange(1, 12).Draw(t, "packets")) },
			"raise":  func(t *rapid.T) { w.pick(t).src.Raise() },
			"time": func(t *rapid.T) {
				w.clock.now += time.Duration(rapid.IntRange(1, 200).Draw(t, "µs")) * time.Microsecond
			},
			"": func(t *rapid.T) {
				if w.broken != "" {
					t.Fatal(w.broken)
				}
			},
		})
		w.rest(t)
		for _, s := range w.sources {
			if st := s.src.Stats(); s.n != 0 || st.Work != s.arrived || st.Bytes != st.Work*uint64(s.size) || st.Polls != s.polls {
				t.Fatalf("%s: %d of %d packets left, %d polls: %+v", s.name, s.n, s.arrived, s.polls, st)
			}
		}
	})
}

type world struct {
	clock   fakeClock
	mode    Mode
	eng     *Engine
	sources []*watched
	serial  int    // of polls
	gaveWay bool   // the last Turn did nothing but yield
	broken  string // the first broken invariant
}

func newWorld(t *rapid.T) *world {
	w := &world{mode: rapid.SampledFrom([]Mode{NAPI, InterruptDriven}).Draw(t, "mode")}
	window := rapid.SampledFrom([]time.Duration{0, DefaultBusyPoll}).Draw(t, "window")
	eng, err := New(Config{Mode: w.mode, BusyPoll: window, Clock: w.clock.read})
	if err != nil {
		t.Fatal(err)
	}
	w.eng = eng
	for i := range rapid.IntRange(1, 4).Draw(t, "sources") {
		s := &watched{w: w, budget: rapid.IntRange(1, 5).Draw(t, "budget"), lastPoll: -1}
		s.name = fmt.Sprint("source ", i)
		s.size = rapid.SampledFrom([]int{10, bulkBytes / 4}).Draw(t, "size")
		s.drained = rapid.Bool().Draw(t, "drained")
		itr := rapid.SampledFrom([]ITR{{}, {Policy: ITRStatic, Rate: LowRate}, {Policy: ITRStatic, Rate: BulkRate}}).Draw(t, "itr")
		if s.src, err = eng.Add(Spec{Name: s.name, Poller: s, Line: s, Budget: s.budget, ITR: itr}); err != nil {
			t.Fatal(err)
		}
		w.sources = append(w.sources, s)
	}
	return w
}

func (w *world) pick(t *rapid.T) *watched { return rapid.SampledFrom(w.sources).Draw(t, "source") }

func (w *world) breaks(format string, args ...any) {
	if w.broken == "" {
		w.broken = fmt.Sprintf(format, args...)
	}
}

// turn does one Turn and checks it.
func (w *world) turn(t *rapid.T) Next {
	var waiting []*watched
	for _, s := range w.sources {
		s.pollsInTurn = 0
		if s.exhausted() && w.mode == NAPI {
			waiting = append(waiting, s)
		}
	}
	serial := w.serial
	next := w.eng.Turn()
	gaveWay := next.Do == Yield && w.serial == serial
	for _, s := range waiting {
		if s.pollsInTurn != 1 && (!gaveWay || w.gaveWay) {
			t.Fatalf("%s had used its budget and was polled %d times in the next Turn", s.name, s.pollsInTurn)
		}
	}
	w.gaveWay = gaveWay
	if next.Do == Sleep && next.For > 0 {
		w.checkSleep(t, next.For)
	}
	if next.Do == Rest {
		for _, s := range w.sources {
			if s.enabled || next.For != restTime || w.mode != NAPI {
				t.Fatalf("rest %v in mode %v, %s armed: %v", next.For, w.mode, s.name, s.enabled)
			}
		}
	}
	if w.broken != "" {
		t.Fatal(w.broken)
	}
	return next
}

func (w *world) checkSleep(t *rapid.T, limit time.Duration) {
	first := Forever
	for _, s := range w.sources {
		if s.enabled || s.src.raised.Load() {
			continue
		}
		left := s.lastIRQ + s.src.itr.gap - w.clock.now
		if !s.interrupted || left <= 0 {
			t.Fatalf("sleep %v with %s masked, no gap to wait for and %d packets waiting", limit, s.name, s.n)
		}
		first = min(first, left)
	}
	if limit != first {
		t.Fatalf("sleep %v, but the first gap ends in %v", limit, first)
	}
}

// rest does Turns and lets time pass until nothing is left to do.
func (w *world) rest(t *rapid.T) {
	for range 10_000 {
		switch next := w.turn(t); {
		case next.Do == Sleep && next.For == Forever:
			return
		case next.Do == Sleep, next.Do == Rest:
			w.clock.now += next.For
		default:
			w.clock.now += time.Microsecond
		}
	}
	t.Fatal("the engine does not come to rest")
}

// watched is a mailbox that checks how it is used.
type watched struct {
	mailbox
	w           *world
	budget      int
	arrived     uint64
	polls       uint64
	pollsInTurn int
	lastPoll    int  // serial of the last poll, -1 before the first
	full        bool // it found a full budget
	interrupted bool
	lastIRQ     time.Duration
}

func (s *watched) exhausted() bool { return s.lastPoll >= 0 && s.full }

func (s *watched) arrive(n int) {
	s.arrived += uint64(n)
	s.mailbox.arrive(n)
}

func (s *watched) Poll(budget int) Result {
	w := s.w
	if s.enabled {
		w.breaks("%s polled with its interrupt enabled", s.name)
	}
	if budget != s.budget {
		w.breaks("%s polled with budget %d, not %d", s.name, budget, s.budget)
	}
	if s.exhausted() && w.mode == NAPI {
		for _, o := range w.sources {
			if o.exhausted() && o.lastPoll < s.lastPoll {
				w.breaks("%s polled before %s, which is ahead of it in the list", s.name, o.name)
			}
		}
	}
	if s.src.byIRQ { // this poll answers an interrupt
		if s.interrupted && w.clock.now-s.lastIRQ < s.src.itr.gap {
			w.breaks("%s interrupted twice in %v, its gap is %v", s.name, w.clock.now-s.lastIRQ, s.src.itr.gap)
		}
		s.interrupted, s.lastIRQ = true, w.clock.now
	}
	r := s.mailbox.Poll(budget)
	s.full = r.Work == budget
	s.lastPoll = w.serial
	w.serial++
	s.polls++
	s.pollsInTurn++
	return r
}

func (s *watched) Arm() bool {
	if s.exhausted() && s.w.mode == NAPI {
		s.w.breaks("%s armed after a poll that used its budget", s.name)
	}
	return s.mailbox.Arm()
}
