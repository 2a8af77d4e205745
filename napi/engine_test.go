package napi

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

// A scene is a script and the log that its last word must produce.
type scene struct{ name, script, want string }

// play runs each scene with two sources, VELO first, and budgets of 4 and 2.
func play(t *testing.T, c Config, scenes []scene) {
	for _, s := range scenes {
		t.Run(s.name, func(t *testing.T) {
			r := newRig(t, c)
			r.add("velo", 4, ITR{})
			r.add("rma", 2, ITR{})
			if got := r.run(s.script); got != s.want {
				t.Errorf("%s:\n got %s\nwant %s", s.script, got, s.want)
			}
		})
	}
}

// TestNineSteps walks through section 5.1.4.
func TestNineSteps(t *testing.T) {
	play(t, Config{}, []scene{
		{"NAP-1/1 a packet reaches the queue of a masked source", "velo+1", ""},
		{"NAP-1/2 an armed source interrupts", "turn velo+1", "irq velo"},
		{"NAP-1/2 once", "turn velo+1 velo+1", ""},
		{"NAP-1/3 the handler masks and enlists, others stay armed", "turn velo+1 turn", "mask velo, poll velo 1/4, look"},
		{"NAP-1/3 in the order of the interrupts", "turn rma+1 velo+1 turn", "mask velo, mask rma, poll velo 1/4, poll rma 1/2, again"},
		{"NAP-1/4 the same turn polls", "turn rma+1 turn", "mask rma, poll rma 1/2, look"},
		{"NAP-1/5 the first entry is polled first", "turn rma+5 turn velo+1 turn", "mask velo, poll rma 2/2, poll velo 1/4, again"},
		{"NAP-1/6a,7 less than the budget: off the list and armed", "turn velo+3 turn turn", "arm velo, sleep"},
		{"NAP-1/6a an empty poll is less than the budget", "turn velo! turn turn", "arm velo, sleep"},
		{"NAP-1/6b all of the budget: still masked", "turn velo+4 turn turn", "poll velo 0/4, look"},
		{"NAP-1/6b only then armed", "turn velo+4 turn turn turn", "arm velo, sleep"},
		{"NAP-1/8 back to the tail", "turn velo+9 rma+5 turn turn", "poll velo 4/4, poll rma 2/2, again"},
		{"NAP-1/8 first come, first polled", "turn rma+9 turn velo+9 turn turn", "poll rma 2/2, poll velo 4/4, again"},
		{"NAP-1/9 one done, the other goes on", "turn velo+1 rma+5 turn turn", "arm velo, poll rma 2/2, look"},
		{"NAP-1/9 list empty: sleep", "turn velo+9 rma+9 idle", "arm rma, sleep"},
		{"NAP-1 re-check finds what came before the first arming", "velo+1 turn", "pending velo, arm rma, poll velo 1/4, look"},
		{"NAP-1 re-check finds what came after the last poll", "turn velo+1 turn velo+1 turn", "pending velo, poll velo 1/4, look"},
		{"NAP-1 a late interrupt of a masked source changes nothing", "turn velo+4 turn velo! turn", "poll velo 0/4, look"},
		{"NAP-1 nor that of a quiet one", "turn velo+1 turn velo! turn", "arm velo, sleep"},
	})
}

// TestBusyPoll: the window is 50 µs after the last work of any source.
func TestBusyPoll(t *testing.T) {
	play(t, Config{BusyPoll: DefaultBusyPoll}, []scene{
		{"asleep, nothing is polled", "turn +1s turn", "sleep"},
		{"an interrupt without work opens no window", "turn velo! turn turn", "arm velo, sleep"},
		{"work masks the others and polls them too", "turn velo+1 turn turn", "mask rma, poll velo 0/4, poll rma 0/2, yield"},
		{"nobody is armed inside the window", "turn velo+1 turn turn +49µs turn", "poll velo 0/4, poll rma 0/2, yield"},
		{"all are polled once more after it", "turn velo+1 turn turn +50µs turn", "poll velo 0/4, poll rma 0/2, again"},
		{"and armed then", "turn velo+1 turn turn +50µs turn turn", "arm velo, arm rma, sleep"},
		{"what came during the last yield is found", "turn velo+1 turn turn +60µs rma+1 turn", "poll velo 0/4, poll rma 1/2, again"},
		{"the other's work is found without an interrupt", "turn velo+1 turn turn rma+1 turn", "poll velo 0/4, poll rma 1/2, again"},
		{"and extends the window", "turn velo+1 turn turn +40µs rma+1 turn turn +49µs turn", "poll velo 0/4, poll rma 0/2, yield"},
		{"the window starts at the end of the round", "turn velo+1 turn +1ms turn", "mask rma, poll velo 0/4, poll rma 0/2, yield"},
		{"a full budget opens it as well", "turn velo+4 turn turn", "mask rma, poll velo 0/4, poll rma 0/2, yield"},
	})
}

// TestLongYield: after a yield that took long, the loop sleeps for some time when there is no work.
func TestLongYield(t *testing.T) {
	play(t, Config{BusyPoll: 10 * time.Millisecond}, []scene{
		{"a short yield is no loss", "turn velo+1 turn turn +999µs velo+1 turn turn", "poll velo 0/4, yield"},
		{"after a long one everybody is polled once", "turn velo+1 turn turn +1ms velo+1 turn velo+1 turn turn", "poll velo 0/4, poll rma 0/2, again"},
		{"and armed when there is nothing", "turn velo+1 turn turn +1ms velo+1 turn turn turn", "arm velo, arm rma, sleep"},
		{"for 2 ms", "turn velo+1 turn turn +1ms turn turn turn +1900µs velo+1 turn turn", "mask rma, poll velo 0/4, poll rma 0/2, again"},
		{"work after that is polled for again", "turn velo+1 turn turn +1ms turn turn turn +2ms velo+1 turn turn", "poll velo 0/4, yield"},
		{"a long sleep is no loss", "turn +1s velo+1 turn turn", "mask rma, poll velo 0/4, poll rma 0/2, yield"},
	})
}

// TestLosses: each loss that soon follows another ends busy polling for longer, up to a bound. A
// single loss does not.
func TestLosses(t *testing.T) {
	r := newRig(t, Config{BusyPoll: DefaultBusyPoll})
	velo := r.add("velo", 4, ITR{})
	velo.log = nil
	// work brings a packet, and returns whether the loop yields once it has it.
	work := func() bool {
		velo.arrive(1)
		for range 10 {
			if next := r.eng.Turn(); next.Do != Again {
				return next.Do == Yield
			}
		}
		t.Fatal("the loop neither yields nor sleeps")
		return false
	}
	// lose makes a yield take a millisecond and returns how long nobody yields after it.
	lose := func() time.Duration {
		if !work() {
			t.Fatal("no yield to lose")
		}
		r.clock.now += longLoss
		for start := r.clock.now; r.clock.now-start < time.Second; r.clock.now += 100 * time.Microsecond {
			if work() {
				return r.clock.now - start
			}
		}
		t.Fatal("nobody yields any more")
		return 0
	}
	r.eng.Turn()
	near := func(got, want time.Duration) bool { return got >= want && got < want+time.Millisecond }
	for want := firstHold; want < lossHold; want *= 2 {
		if got := lose(); !near(got, want) {
			t.Fatalf("no yields for %v, want %v", got, want)
		}
	}
	for range 3 {
		if got := lose(); !near(got, lossHold) {
			t.Fatalf("no yields for %v, want %v", got, lossHold)
		}
	}
	for r.eng.Turn().Do != Sleep { // without a lost yield
		r.clock.now += 100 * time.Microsecond
	}
	r.clock.now += time.Second
	if got := lose(); !near(got, firstHold) {
		t.Errorf("no yields for %v long after the last loss, want %v", got, firstHold)
	}
}

// TestEmptyIsNotPolledTwice: sources that were found empty after the last work are not polled again
// before a yield. After the yield all are polled.
func TestEmptyIsNotPolledTwice(t *testing.T) {
	play(t, Config{BusyPoll: DefaultBusyPoll}, []scene{
		{"polled before the work", "turn velo+1 turn velo+1 turn turn", "poll velo 0/4, yield"},
		{"polled after it, and before", "turn velo+1 turn rma+1 turn turn", "poll velo 0/4, poll rma 0/2, yield"},
		{"after a yield", "turn velo+1 turn velo+1 turn turn turn", "poll rma 0/2, poll velo 0/4, yield"},
		{"work after a yield", "turn velo+1 turn velo+1 turn turn rma+1 turn", "poll rma 1/2, poll velo 0/4, again"},
		{"a budget that was used up", "turn velo+1 turn velo+4 turn turn", "poll velo 0/4, yield"},
		{"when it is time to arm", "turn velo+1 turn velo+1 turn +50µs turn", "poll velo 0/4, yield"},
		{"and then", "turn velo+1 turn velo+1 turn turn +50µs turn", "poll rma 0/2, poll velo 0/4, again"},
	})
	r := newRig(t, Config{BusyPoll: DefaultBusyPoll})
	tun := r.add("tun", 4, ITR{})
	r.add("rma", 2, ITR{})
	tun.drained = true
	if got, want := r.run("turn tun+1 turn tun+1 turn turn"), "yield"; got != want {
		t.Errorf("a source that saw its own end: %s, want %s", got, want)
	}
}

// TestRest: in bulk, a yield that returns at once is followed by rests, for eight windows.
func TestRest(t *testing.T) {
	const bulk = "turn velo+2 turn turn " // which ends in a yield
	for _, c := range []struct {
		window time.Duration
		rests  uint64
		scene
	}{
		{DefaultBusyPoll, 1, scene{"after a yield that came back at once", bulk + "+3µs turn", "poll velo 0/4, poll rma 0/2, rest"}},
		{DefaultBusyPoll, 0, scene{"not after one that gave somebody the CPU", bulk + "+4µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{DefaultBusyPoll, 1, scene{"nor after work", bulk + "+1µs turn +40µs velo+1 turn turn", "poll velo 0/4, yield"}},
		{DefaultBusyPoll, 2, scene{"again after a rest, however long it was", bulk + "+1µs turn +90µs turn", "poll velo 0/4, poll rma 0/2, rest"}},
		{DefaultBusyPoll, 2, scene{"for eight windows", bulk + "+1µs turn +398µs turn", "poll velo 0/4, poll rma 0/2, rest"}},
		{DefaultBusyPoll, 1, scene{"after which all are polled once more", bulk + "+1µs turn +399µs turn", "poll velo 0/4, poll rma 0/2, again"}},
		{DefaultBusyPoll, 1, scene{"and armed", bulk + "+1µs turn +399µs turn turn", "arm velo, arm rma, sleep"}},
		{DefaultBusyPoll, 1, scene{"a rest is no loss", bulk + "+1µs turn +5ms velo+1 turn turn", "poll velo 0/4, yield"}},
		{DefaultBusyPoll, 0, scene{"a little less is no bulk", "turn velo+1 turn turn +1µs rma+2 turn turn turn +1µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{DefaultBusyPoll, 1, scene{"in a millisecond", "turn velo+1 turn turn +500µs turn turn +499µs velo+1 turn turn +1µs turn", "poll velo 0/4, poll rma 0/2, rest"}},
		{DefaultBusyPoll, 0, scene{"not in more", "turn velo+1 turn turn +500µs turn turn +500µs velo+1 turn turn +1µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{DefaultBusyPoll, 1, scene{"what was long ago is forgotten", bulk + "+1µs turn +399µs turn turn +1s rma+1 turn turn +1µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{DefaultBusyPoll, 0, scene{"in two milliseconds, however much it was", "turn velo+40 turn turn turn turn turn turn turn turn turn turn turn +400µs turn turn +2ms rma+1 turn turn +1µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{time.Millisecond, 1, scene{"up to a long window", bulk + "+1µs turn", "poll velo 0/4, poll rma 0/2, rest"}},
		{time.Millisecond + 1, 0, scene{"with which there is none", bulk + "+1µs turn", "poll velo 0/4, poll rma 0/2, yield"}},
		{0, 0, scene{"nor without one", bulk, "arm velo, sleep"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{BusyPoll: c.window})
			r.add("velo", 4, ITR{}).size = bulkBytes / 2
			r.add("rma", 2, ITR{}).size = 1
			if got := r.run(c.script); got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.script, got, c.want)
			}
			if s := r.eng.Stats(); s.Losses != 0 || s.Rests != c.rests {
				t.Errorf("%+v, want %d rests", s, c.rests)
			}
		})
	}
	for _, size := range []int{bulkBytes / 2, math.MaxInt} {
		r := newRig(t, Config{BusyPoll: DefaultBusyPoll})
		for _, name := range []string{"velo", "rma"} {
			r.add(name, 2, ITR{}).size = size
		}
		if got, want := r.run("turn velo+1 rma+1 turn turn +1µs turn"), "poll velo 0/2, poll rma 0/2, rest"; got != want {
			t.Errorf("%d bytes of two sources each: %s, want %s", size, got, want)
		}
	}
}

// TestBursts: while bulk comes in bursts that ask for a yield, the loop does not rest, and polls
// for 5 ms.
func TestBursts(t *testing.T) {
	const (
		// with the yield after it, and a yield during which nothing came
		burst    = "turn velo+2 turn turn turn "
		polled   = "poll velo 0/4, poll rma 0/2, "
		further  = "+900µs turn +900µs turn +900µs turn +900µs turn +900µs turn " // 4.5 ms
		noBursts = "rma+1 turn turn +1µs turn"
	)
	for _, c := range []struct {
		window time.Duration
		size   int
		scene
	}{
		{DefaultBusyPoll, bulkBytes, scene{"no rest", burst + "+1µs turn", polled + "yield"}},
		{DefaultBusyPoll, bulkBytes, scene{"for 5 ms", burst + further + "+499µs turn", polled + "yield"}},
		{DefaultBusyPoll, bulkBytes, scene{"after which all are polled once more", burst + further + "+500µs turn", polled + "again"}},
		{DefaultBusyPoll, bulkBytes, scene{"and armed", burst + further + "+500µs turn turn", "arm velo, arm rma, sleep"}},
		{DefaultBusyPoll, bulkBytes, scene{"bulk meanwhile", burst + further + "+498µs " + noBursts, polled + "yield"}},
		{DefaultBusyPoll, bulkBytes, scene{"bulk after it", burst + further + "+500µs turn turn " + noBursts, polled + "rest"}},
		{DefaultBusyPoll, 1, scene{"bursts that are no bulk", burst + "+49µs turn +1µs turn", polled + "again"}},
		{time.Millisecond, bulkBytes, scene{"up to a long window", burst + "+900µs turn +900µs turn", polled + "yield"}},
		{time.Millisecond + 1, bulkBytes, scene{"which is its own", burst + "+900µs turn +101µs turn", polled + "again"}},
		{0, bulkBytes, scene{"nor without one", "turn velo+2 turn turn turn", "arm velo, sleep"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, Config{BusyPoll: c.window})
			velo, rma := r.add("velo", 4, ITR{}), r.add("rma", 2, ITR{})
			velo.size, velo.yields, rma.size = c.size, true, c.size
			if got := r.run(c.script); got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.script, got, c.want)
			}
		})
	}
}

func TestSetBusyPoll(t *testing.T) {
	r := newRig(t, Config{})
	r.add("velo", 4, ITR{})
	r.eng.SetBusyPoll(Forever)
	if got := r.run("turn +1h turn"); got != "poll velo 0/4, yield" {
		t.Errorf("window Forever: %s", got)
	}
	r.eng.SetBusyPoll(0)
	if got := r.run("turn"); got != "arm velo, sleep" {
		t.Errorf("window 0: %s", got)
	}
}

// TestBlocked: a source out of credit is armed at once and nothing busy-polls, until its interrupt
// lets it go on.
func TestBlocked(t *testing.T) {
	r := newRig(t, Config{BusyPoll: DefaultBusyPoll})
	r.add("velo", 4, ITR{})
	tun := r.add("tun", 4, ITR{})
	r.run("turn velo+1 tun+2")
	tun.blocked = true
	for _, c := range []struct{ script, want string }{
		{"turn", "mask velo, mask tun, poll velo 1/4, poll tun 0/4, again"},
		{"turn", "arm velo, arm tun, sleep"},
		{"velo+1 turn", "mask velo, poll velo 1/4, look"},
		{"turn", "arm velo, sleep"},
	} {
		if got := r.run(c.script); got != c.want {
			t.Fatalf("%s:\n got %s\nwant %s", c.script, got, c.want)
		}
	}
	tun.blocked = false
	for _, c := range []struct{ script, want string }{
		{"tun! turn", "mask tun, poll tun 2/4, again"},
		{"turn", "mask velo, poll velo 0/4, poll tun 0/4, yield"},
	} {
		if got := r.run(c.script); got != c.want {
			t.Fatalf("%s:\n got %s\nwant %s", c.script, got, c.want)
		}
	}
	if got := tun.src.Stats().Blocked; got != 1 {
		t.Errorf("Blocked = %d, want 1", got)
	}
}

// TestInterruptMode (DRV-2): sources are handled directly, and armed again whatever was found, in
// the order of registration.
func TestInterruptMode(t *testing.T) {
	play(t, Config{Mode: InterruptDriven, BusyPoll: DefaultBusyPoll}, []scene{
		{"handled at once", "turn velo+1 turn", "mask velo, poll velo 1/4, look"},
		{"armed again", "turn velo+1 turn turn", "arm velo, sleep"},
		{"also after a full budget", "turn velo+4 turn turn", "arm velo, sleep"},
		{"more work is the next interrupt", "turn velo+5 turn turn", "pending velo, mask velo, poll velo 1/4, look"},
		{"no round robin", "turn rma+9 turn velo+9 turn", "mask velo, poll velo 4/4, pending rma, mask rma, poll rma 2/2, again"},
		{"no window", "turn velo+1 turn turn +1µs turn", "sleep"},
	})
}

// TestSlice: after a slice of uninterrupted work a Turn only asks for a yield, with and without
// busy polling.
func TestSlice(t *testing.T) {
	for _, window := range []time.Duration{0, DefaultBusyPoll} {
		r := newRig(t, Config{BusyPoll: window, Slice: 100 * time.Microsecond})
		velo := r.add("velo", 4, ITR{})
		r.run("turn velo+4")
		polls := 0
		velo.polling = func(int) { polls++; velo.n = 4; r.clock.now += 25 * time.Microsecond }
		var got []string
		for range 10 {
			got = append(got, r.turn().Do.String())
		}
		// The Turns begin 0, 25, 50, 75 and 100 µs after the last pause.
		want := "again again again again yield again again again again yield"
		if got := strings.Join(got, " "); got != want || polls != 8 {
			t.Errorf("window %v:\n got %s, %d polls\nwant %s, 8 polls", window, got, polls, want)
		}
	}
}

// TestGiveWay: what a yield after a slice of work changes for the Turns around it.
func TestGiveWay(t *testing.T) {
	play(t, Config{BusyPoll: DefaultBusyPoll, Slice: 100 * time.Microsecond}, []scene{
		{"after work only", "turn velo+1 turn turn +1ms velo+1 turn turn +100µs turn", "arm velo, arm rma, sleep"},
		{"nobody is polled", "turn velo+4 turn rma+1 +100µs turn", "yield"},
		{"but then", "turn velo+4 turn rma+1 +100µs turn turn", "mask rma, poll velo 0/4, poll rma 1/2, again"},
		{"the window starts after it", "turn velo+1 turn +100µs turn +900µs turn", "mask rma, poll velo 0/4, poll rma 0/2, yield"},
		{"a long one is no loss", "turn velo+1 turn +100µs turn +1ms velo+1 turn turn", "poll velo 0/4, yield"},
	})
}

// TestLent: where yields after short slices give others more time than the loop has, it works for
// longer in between until that is balanced.
func TestLent(t *testing.T) {
	r := newRig(t, Config{Slice: 100 * time.Microsecond})
	velo := r.add("velo", 4, ITR{})
	velo.log = nil
	r.run("turn velo+4")
	velo.polling = func(int) { velo.n = 4; r.clock.now += 50 * time.Microsecond }
	// work returns how long the loop works until it yields. The yield takes the given time.
	work := func(yield time.Duration) time.Duration {
		begin := r.clock.now
		for r.eng.Turn().Do != Yield {
		}
		worked := r.clock.now - begin
		r.clock.now += yield
		return worked
	}
	for _, c := range []struct {
		yield, want time.Duration // want is the work before the yield
	}{
		{100 * time.Microsecond, 100 * time.Microsecond}, // as much as the loop had
		{time.Microsecond, 100 * time.Microsecond},
		{3 * time.Millisecond, 100 * time.Microsecond}, // now 2.8 ms are lent
		{0, fairSlice}, // now 0.8 ms
		{0, fairSlice}, // now none
		{time.Minute, 100 * time.Microsecond},
		{0, fairSlice}, {0, fairSlice}, {0, fairSlice}, {0, fairSlice}, {0, fairSlice}, // maxLent
		{0, 100 * time.Microsecond},
	} {
		if got := work(c.yield); got != c.want {
			t.Fatalf("before a yield of %v: %v of work, want %v", c.yield, got, c.want)
		}
	}
	for range 1000 { // the account also remembers no more than that of the loop's own time
		work(0)
	}
	if work(maxLent + time.Millisecond); work(0) != fairSlice {
		t.Errorf("%v were lent in a thousand short slices", maxLent)
	}
	r.eng.slice = 2 * fairSlice
	if work(maxLent); work(0) != 2*fairSlice {
		t.Error("a slice that is longer anyway was shortened")
	}
}

// TestAsked: a poll may ask for an earlier yield. It comes unless such yields gave others more time
// than the loop had.
func TestAsked(t *testing.T) {
	r := newRig(t, Config{Slice: 100 * time.Microsecond, BusyPoll: DefaultBusyPoll})
	velo, rma := r.add("velo", 4, ITR{}), r.add("rma", 2, ITR{}) // a source that never asks
	velo.log, rma.log = nil, nil
	r.run("turn velo+4")
	velo.polling = func(int) { velo.n = 4; r.clock.now += 10 * time.Microsecond }
	for _, c := range []struct {
		asks        bool
		want, yield time.Duration // the work, and the yield after it
	}{
		{false, 100 * time.Microsecond, 0},
		{true, 10 * time.Microsecond, 0},
		{true, 10 * time.Microsecond, 3 * time.Millisecond}, // now 2.88 ms are lent
		{true, fairSlice, 0},
		{true, fairSlice, 0}, // now none
		{true, 10 * time.Microsecond, 0},
		{false, 100 * time.Microsecond, 0}, // the request was for one yield
	} {
		begin := r.clock.now
		velo.yields = c.asks
		for r.eng.Turn().Do != Yield {
		}
		if got := r.clock.now - begin; got != c.want {
			t.Fatalf("%+v: %v of work", c, got)
		}
		r.clock.now += c.yield
	}
}

// TestStatsAdd: each counter counts its event.
func TestStatsAdd(t *testing.T) {
	r := newRig(t, Config{})
	velo := r.add("velo", 4, ITR{Policy: ITRStatic, Rate: 10_000})
	r.run("turn velo+9 turn turn velo! turn velo! turn velo+1 turn turn +100µs turn turn velo+1 turn turn turn")
	got := velo.src.Stats()
	want := SourceStats{
		Interrupts: 2, // the first packets, and the last
		Spurious:   2, // the two in between
		Suppressed: 3, // polls 2 and 3 of the first nine packets, and the tenth packet
		Rechecks:   1, // found by the check in Arm
		Throttled:  2, // because arming waited for the gap, as it does at the end
		Polls:      5,
		Exhausted:  2,
		Work:       11,
		Bytes:      1100,
		ITRState:   ITRLow,
		ITRRate:    10_000,
	}
	if got != want {
		t.Errorf("\n got %+v\nwant %+v", got, want)
	}
	loop := r.eng.Stats()
	if loop.Turns == 0 || loop.Sleeps == 0 || loop.Turns < loop.Sleeps+loop.Yields+loop.Looks {
		t.Errorf("loop: %+v", loop)
	}
}

// TestBudgets (NAP-2): two independent budgets, 64 by default.
func TestBudgets(t *testing.T) {
	r := newRig(t, Config{})
	velo, rma := r.add("velo", 0, ITR{}), r.add("rma", 7, ITR{})
	if velo.src.Budget() != 64 || rma.src.Budget() != 7 {
		t.Errorf("budgets %d and %d, want 64 and 7", velo.src.Budget(), rma.src.Budget())
	}
	if got, want := r.run("turn velo+65 rma+8 turn turn"), "poll velo 1/64, poll rma 1/7, again"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWildResults: a Poller that breaks its contract harms only its own figures.
func TestWildResults(t *testing.T) {
	for _, c := range []struct {
		name      string
		result    Result
		exhausted bool
		work      uint64
	}{
		{"more than the budget", Result{Work: 100, Bytes: 1}, true, 100},
		{"negative work", Result{Work: -3, Bytes: 5}, false, 0},
		{"negative bytes", Result{Work: 1, Bytes: -5}, false, 1},
		{"blocked with a full budget", Result{Work: 64, Blocked: true}, true, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, _ := New(Config{Clock: new(fakeClock).read})
			s, err := e.Add(Spec{Poller: pollFunc(func(int) Result { return c.result }), Line: &mailbox{n: 1}})
			if err != nil {
				t.Fatal(err)
			}
			e.Turn()
			st := s.Stats()
			if (st.Exhausted == 1) != c.exhausted || st.Work != c.work || st.Bytes > 1 || st.Blocked != 0 {
				t.Errorf("%+v", st)
			}
		})
	}
}

type pollFunc func(budget int) Result

func (f pollFunc) Poll(budget int) Result { return f(budget) }

func TestBadConfig(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Mode: 7}, "unknown mode 7"},
		{Config{BusyPoll: -1}, "busy-poll window -1ns"},
		{Config{Slice: -1}, "slice -1ns"},
	} {
		if _, err := New(c.config); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("New(%+v): %v, want %q", c.config, err, c.want)
		}
	}
	e, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	m := &mailbox{}
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Name: "velo", Line: m}, "needs a Poller and a Line"},
		{Spec{Name: "velo", Poller: m}, "needs a Poller and a Line"},
		{Spec{Name: "velo", Poller: m, Line: m, Budget: -1}, "budget -1"},
		{Spec{Name: "velo", Poller: m, Line: m, ITR: ITR{Policy: 9}}, "unknown ITR policy 9"},
		{Spec{Name: "velo", Poller: m, Line: m, ITR: ITR{Policy: ITRStatic}}, "static ITR of 0"},
		{Spec{Name: "velo", Poller: m, Line: m, ITR: ITR{Policy: ITRStatic, Rate: 2e9}}, "static ITR of 2000000000"},
		{Spec{Name: "velo", Poller: m, Line: m, ITR: ITR{Policy: ITRDynamic, Link: -1}}, "link of -1"},
	} {
		_, err := e.Add(c.spec)
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), `"velo"`) {
			t.Errorf("Add(%+v): %v, want %q", c.spec, err, c.want)
		}
	}
	e.running.Store(true)
	if _, err := e.Add(Spec{Poller: m, Line: m}); !errors.Is(err, ErrRunning) {
		t.Errorf("Add while running: %v, want ErrRunning", err)
	}
}

// TestNoAllocations: the loop allocates nothing, whatever it does.
func TestNoAllocations(t *testing.T) {
	for _, mode := range []Mode{NAPI, InterruptDriven} {
		r := newRig(t, Config{Mode: mode, BusyPoll: DefaultBusyPoll})
		velo := r.add("velo", 4, ITR{Policy: ITRDynamic})
		rma := r.add("rma", 4, ITR{Policy: ITRStatic, Rate: BulkRate})
		velo.log, rma.log = nil, nil
		cycle := func() {
			velo.arrive(9)
			rma.arrive(1)
			for r.eng.Turn().Do != Sleep {
				r.clock.now += 20 * time.Microsecond
			}
			r.clock.now += time.Millisecond
			r.eng.Turn()
		}
		if n := testing.AllocsPerRun(100, cycle); n != 0 {
			t.Errorf("%v: %v allocations per cycle, want 0", mode, n)
		}
		if s := velo.src.Stats(); s.Interrupts == 0 || s.Exhausted == 0 {
			t.Errorf("%v: the cycle does not do what it should: %+v", mode, s)
		}
	}
}
