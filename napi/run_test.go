package napi

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// postbox is a mailbox between goroutines, with the doorbell protocol that Line asks for: publish,
// then ring if armed; arm, then check. Go's atomics are the fence.
type postbox struct {
	src   *Source
	bell  *Doorbell
	n     atomic.Int64
	armed atomic.Bool
	taken int // by the loop
	size  int // bytes of each message
}

func (p *postbox) post(n int) {
	p.n.Add(int64(n))
	if p.armed.CompareAndSwap(true, false) {
		p.bell.Ring(p.src)
	}
}

func (p *postbox) Poll(budget int) Result {
	work := min(int(p.n.Load()), budget)
	p.n.Add(int64(-work))
	p.taken += work
	return Result{Work: work, Bytes: p.size * work}
}

func (p *postbox) Mask() { p.armed.Store(false) }

func (p *postbox) Arm() bool {
	p.armed.Store(true)
	if p.n.Load() > 0 {
		p.armed.Store(false)
		return false
	}
	return true
}

// office returns an engine with n postboxes.
func office(t *testing.T, c Config, itr ITR, n int) (*Engine, *Doorbell, []*postbox) {
	t.Helper()
	e, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	bell := NewDoorbell()
	var boxes []*postbox
	for range n {
		p := &postbox{bell: bell, size: 100}
		if p.src, err = e.Add(Spec{Name: "box", Poller: p, Line: p, ITR: itr}); err != nil {
			t.Fatal(err)
		}
		boxes = append(boxes, p)
	}
	return e, bell, boxes
}

var runConfigs = []struct {
	name string
	Config
	itr   ITR
	rests bool // the messages are bulk
}{
	{name: "NAPI"},
	{name: "NAPI busy polling", Config: Config{BusyPoll: DefaultBusyPoll}},
	{name: "NAPI in bulk", Config: Config{BusyPoll: DefaultBusyPoll}, rests: true},
	{name: "NAPI dynamic ITR", itr: ITR{Policy: ITRDynamic}},
	{name: "interrupt", Config: Config{Mode: InterruptDriven}},
	{name: "interrupt static ITR", Config: Config{Mode: InterruptDriven}, itr: ITR{Policy: ITRStatic, Rate: LowRate}},
}

// TestRunVirtualTime: senders send at their own pace, in virtual time. Every message is received,
// and a loop with nothing to do does not turn.
func TestRunVirtualTime(t *testing.T) {
	for _, c := range runConfigs {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, bell, boxes := office(t, c.Config, c.itr, 2)
				if c.rests {
					boxes[0].size = 1 << 20
				}
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error)
				go func() { done <- e.Run(ctx, bell, func() { time.Sleep(time.Microsecond) }) }()

				var senders sync.WaitGroup
				for i, p := range boxes {
					senders.Go(func() {
						for n := range 300 {
							p.post(1 + n%100)
							time.Sleep(time.Duration(1+n*7%60*(i+1)) * time.Microsecond)
						}
					})
				}
				senders.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				turns := e.Stats().Turns
				time.Sleep(time.Hour)
				synctest.Wait()
				if now := e.Stats().Turns; now != turns {
					t.Errorf("%d turns in an idle hour", now-turns)
				}

				cancel()
				if err := <-done; !errors.Is(err, context.Canceled) {
					t.Errorf("Run: %v, want context.Canceled", err)
				}
				if s := e.Stats(); (s.Rests > 0) != c.rests {
					t.Errorf("%d rests, in bulk: %v", s.Rests, c.rests)
				}
				for i, p := range boxes {
					if p.taken != 15_150 || p.src.Stats().Work != 15_150 {
						t.Errorf("box %d: %d taken, want 15150: %+v", i, p.taken, p.src.Stats())
					}
				}
			})
		})
	}
}

// TestRunThreads: the same with real threads, some of which read the statistics.
func TestRunThreads(t *testing.T) {
	const messages = 20_000
	for _, c := range runConfigs {
		t.Run(c.name, func(t *testing.T) {
			e, bell, boxes := office(t, c.Config, c.itr, 2)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := make(chan error)
			go func() {
				runtime.LockOSThread()
				defer runtime.UnlockOSThread()
				done <- e.Run(ctx, bell, OSYield)
			}()
			var senders sync.WaitGroup
			for _, p := range boxes {
				for range 2 {
					senders.Go(func() {
						for range messages / 2 {
							p.post(1)
						}
					})
				}
			}
			senders.Wait()
			e.SetBusyPoll(0)
			for _, p := range boxes {
				for p.src.Stats().Work < messages {
					runtime.Gosched()
				}
			}
			cancel()
			<-done
			for _, p := range boxes {
				if p.taken != messages {
					t.Errorf("%d messages taken, want %d", p.taken, messages)
				}
			}
		})
	}
}

// TestRunStops: Run masks every source, returns the reason, and may be called again. Then it finds
// what arrived meanwhile.
func TestRunStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, bell, boxes := office(t, Config{}, ITR{}, 1)
		reason := errors.New("the TUN is gone")
		for round := range 3 {
			ctx, cancel := context.WithCancelCause(t.Context())
			done := make(chan error)
			go func() { done <- e.Run(ctx, bell, runtime.Gosched) }()
			synctest.Wait()
			if err := e.Run(ctx, bell, runtime.Gosched); !errors.Is(err, ErrRunning) {
				t.Errorf("second Run: %v, want ErrRunning", err)
			}
			if !boxes[0].armed.Load() {
				t.Error("a running, idle engine has its source masked")
			}
			cancel(reason)
			if err := <-done; err != reason {
				t.Errorf("Run: %v, want %v", err, reason)
			}
			if boxes[0].armed.Load() {
				t.Error("a stopped engine left its source armed")
			}
			if boxes[0].taken != 5*round {
				t.Errorf("round %d: %d messages taken, want %d", round, boxes[0].taken, 5*round)
			}
			boxes[0].post(5)
		}
	})
}

// TestRunStopsInWork: Run also stops in the middle of a flood.
func TestRunStopsInWork(t *testing.T) {
	for _, c := range runConfigs {
		e, bell, boxes := office(t, c.Config, c.itr, 1)
		boxes[0].n.Store(1 << 50)
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if err := e.Run(ctx, bell, OSYield); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: Run: %v", c.name, err)
		}
		if e.list.n != 0 || e.armed != 0 {
			t.Errorf("%s: %d sources listed, %d armed after Run", c.name, e.list.n, e.armed)
		}
	}
}

// oddSleeper has a Sleep and a Wake that the test supplies.
type oddSleeper struct {
	sleep func(time.Duration) error
	wake  func()
}

func (s oddSleeper) Sleep(d time.Duration) error { return s.sleep(d) }
func (s oddSleeper) Wake()                       { s.wake() }

func TestRunSleeperFails(t *testing.T) {
	e, _, boxes := office(t, Config{}, ITR{}, 1)
	broken := errors.New("bad file descriptor")
	err := e.Run(t.Context(), oddSleeper{sleep: func(time.Duration) error { return broken }}, OSYield)
	if !errors.Is(err, broken) || boxes[0].armed.Load() {
		t.Errorf("Run: %v, armed %v; want %v, masked", err, boxes[0].armed.Load(), broken)
	}
}

// TestRunWaitsForWake: when Run has returned, nobody uses the Sleeper, so it can be closed.
func TestRunWaitsForWake(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, _, _ := office(t, Config{}, ITR{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		woken := false
		err := e.Run(ctx, oddSleeper{
			sleep: func(time.Duration) error { cancel(); time.Sleep(time.Millisecond); return nil },
			wake:  func() { time.Sleep(time.Second); woken = true },
		}, OSYield)
		if !errors.Is(err, context.Canceled) || !woken {
			t.Errorf("Run returned %v before Wake did", err)
		}
	})
}

func TestDoorbell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := NewDoorbell()
		slept := func(limit time.Duration) time.Duration {
			begin := time.Now()
			if err := d.Sleep(limit); err != nil {
				t.Error(err)
			}
			return time.Since(begin)
		}
		s := new(Source)
		d.Ring(s)
		if !s.takeRaised() || s.takeRaised() {
			t.Error("Ring raises the source once")
		}
		if got := slept(Forever); got != 0 {
			t.Errorf("a ring before the sleep was lost: slept %v", got)
		}
		for range 2 { // the second time with a used timer
			if got := slept(0); got != 0 {
				t.Errorf("slept %v, want 0", got)
			}
			if got := slept(time.Minute); got != time.Minute {
				t.Errorf("slept %v, want 1m", got)
			}
			time.AfterFunc(time.Second, d.Wake)
			if got := slept(time.Minute); got != time.Second {
				t.Errorf("slept %v until Wake, want 1s", got)
			}
			time.AfterFunc(time.Second, d.Wake)
			if got := slept(Forever); got != time.Second {
				t.Errorf("slept %v until Wake, want 1s", got)
			}
		}
		d.Wake()
		d.Wake()
		slept(0)
		if got := slept(time.Second); got != time.Second {
			t.Errorf("a look takes all rings: then slept %v, want 1s", got)
		}
	})
}

// TestRunSchedules: other goroutines run every few milliseconds, although the loop never blocks in
// a way that Go knows of.
func TestRunSchedules(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var clock fakeClock
	e, bell, boxes := office(t, Config{BusyPoll: Forever, Clock: clock.read}, ITR{}, 1)
	boxes[0].post(1)
	ctx, cancel := context.WithCancel(t.Context())
	const yields = 1000
	n := 0
	var others atomic.Int64
	go func() {
		for ctx.Err() == nil {
			others.Add(1)
			runtime.Gosched()
		}
	}()
	// All this takes less real time than Go's monitor would wait.
	_ = e.Run(ctx, bell, func() {
		clock.now += schedule / 2
		if n++; n == yields {
			cancel()
		}
	})
	if got := others.Load(); got < yields/4 || got > yields*3/4 {
		t.Errorf("another goroutine ran %d times in %d yields of %v, want half as often", got, yields, schedule/2)
	}
}
