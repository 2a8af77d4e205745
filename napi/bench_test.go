package napi

import (
	"testing"
	"time"
)

// bottomless is a source that finds the same amount in each poll.
type bottomless struct{ result Result }

func (b bottomless) Poll(int) Result { return b.result }
func (b bottomless) Mask()           {}
func (b bottomless) Arm() bool       { return true }

func benchEngine(b *testing.B, c Config, found Result) *Engine {
	e, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	for range benchSources {
		p := bottomless{found}
		if _, err := e.Add(Spec{Poller: p, Line: p, ITR: ITR{Policy: ITRDynamic}}); err != nil {
			b.Fatal(err)
		}
	}
	return e
}

const benchSources = 3 // VELO, RMA, TUN

func perPoll(b *testing.B) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchSources), "ns/poll")
}

// BenchmarkTurn measures what the engine adds to a poll, with the real clock unless the name says
// otherwise.
func BenchmarkTurn(b *testing.B) {
	for _, c := range []struct {
		name  string
		found Result
		clock Clock
	}{
		{"idle", Result{}, nil},
		{"some", Result{Work: 1, Bytes: 100}, nil},
		{"full", Result{Work: DefaultBudget, Bytes: 1 << 20}, nil},
		{"full, fake clock", Result{Work: DefaultBudget, Bytes: 1 << 20}, func() time.Duration { return 0 }},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := benchEngine(b, Config{BusyPoll: Forever, Clock: c.clock}, c.found)
			b.ReportAllocs()
			for b.Loop() {
				e.Turn()
			}
			perPoll(b)
		})
	}
}

// BenchmarkInterrupt measures a cycle without the sleep itself: interrupt, poll, arm.
func BenchmarkInterrupt(b *testing.B) {
	for _, mode := range []Mode{NAPI, InterruptDriven} {
		b.Run(mode.String(), func(b *testing.B) {
			clock := new(fakeClock)
			e := benchEngine(b, Config{Mode: mode, Clock: clock.read}, Result{Work: 1})
			e.Turn()
			b.ReportAllocs()
			for b.Loop() {
				for _, s := range e.sources {
					s.Raise()
				}
				clock.now += time.Millisecond
				for e.Turn().Do != Sleep {
				}
			}
			perPoll(b)
		})
	}
}
