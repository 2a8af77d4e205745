package napi

import (
	"testing"
	"time"
)

// TestITRStates: every transition of ITR-1, on both sides of both thresholds.
func TestITRStates(t *testing.T) {
	for _, c := range []struct {
		from       ITRState
		throughput BytesPerMicro
		want       ITRState
	}{
		{ITRLowest, 0, ITRLowest},
		{ITRLowest, 10, ITRLowest},
		{ITRLowest, 11, ITRLow},
		{ITRLowest, 1000, ITRLow}, // one step at a time
		{ITRLow, 0, ITRLowest},
		{ITRLow, 10, ITRLowest},
		{ITRLow, 11, ITRLow},
		{ITRLow, 20, ITRLow},
		{ITRLow, 21, ITRBulk},
		{ITRBulk, 21, ITRBulk},
		{ITRBulk, 20, ITRLow},
		{ITRBulk, 0, ITRLow}, // one step at a time
	} {
		low, bulk := ITR{}.thresholds()
		if got := c.from.next(c.throughput, low, bulk); got != c.want {
			t.Errorf("ITR-1: %v at %d bytes/µs: %v, want %v", c.from, c.throughput, got, c.want)
		}
	}
}

func TestITRThresholdsScale(t *testing.T) {
	for _, c := range []struct{ link, low, bulk BytesPerMicro }{
		{0, 10, 20},
		{1250, 10, 20},
		{12500, 100, 200}, // 100 Gbit/s
		{125, 1, 2},
		{1, 1, 2},
		{maxLink, 8_000_000, 16_000_000},
	} {
		if low, bulk := (ITR{Link: c.link}).thresholds(); low != c.low || bulk != c.bulk {
			t.Errorf("ITR-1: link %d bytes/µs: thresholds %d and %d, want %d and %d", c.link, low, bulk, c.low, c.bulk)
		}
	}
}

// dynamic is a throttle on a link of 10 Gbit/s.
func dynamic() *throttle {
	t := new(throttle)
	t.init(ITR{Policy: ITRDynamic}, 0)
	return t
}

// interval makes bytes arrive in packets of 100, and a poll finish d later.
func (t *throttle) interval(d time.Duration, bytes int) (ITRState, Rate) {
	t.add((bytes+99)/100, bytes)
	t.finish(t.since + d)
	return ITRState(t.state.Load()), Rate(t.rate.Load())
}

// TestITRHysteresis: the state needs one interval, the rate many.
func TestITRHysteresis(t *testing.T) {
	tr := dynamic()
	if s, r := ITRState(tr.state.Load()), Rate(tr.rate.Load()); s != ITRLow || r != LowRate || tr.gap != 50*time.Microsecond {
		t.Fatalf("ITR-1: begins %v at %d/s with a gap of %v, want low at 20000/s, 50µs", s, r, tr.gap)
	}
	for i, want := range []struct {
		bytes int // in 100 µs
		state ITRState
		rate  Rate
	}{
		{2100, ITRBulk, 18800}, // a tenth of the way from 20,000 to 8,000
		{2100, ITRBulk, 17720},
		{2000, ITRLow, 17948}, // one quiet interval changes the rate by 1.3 %
		{2100, ITRBulk, 16954},
		{0, ITRBulk, 16954}, // an interval without packets tells nothing
		{100, ITRLow, 17258},
		{100, ITRLowest, 25532}, // a tenth of the way to 100,000
		{1100, ITRLow, 24979},
	} {
		if s, r := tr.interval(100*time.Microsecond, want.bytes); s != want.state || r != want.rate {
			t.Fatalf("ITR-1: interval %d: %v at %d/s, want %v at %d/s", i, s, r, want.state, want.rate)
		}
	}
}

// TestITRConverges: steady traffic ends exactly at the rate and gap of its state.
func TestITRConverges(t *testing.T) {
	tr := dynamic()
	for _, c := range []struct {
		bytes int // in 200 µs
		state ITRState
		rate  Rate
		gap   time.Duration
	}{
		{100_000, ITRBulk, 8_000, 125 * time.Microsecond},
		{3_000, ITRLow, 20_000, 50 * time.Microsecond},
		{200, ITRLowest, 100_000, 10 * time.Microsecond},
		{3_000, ITRLow, 20_000, 50 * time.Microsecond},
		{4_200, ITRBulk, 8_000, 125 * time.Microsecond},
	} {
		n := 0
		for ; n < 200 && Rate(tr.rate.Load()) != c.rate; n++ {
			tr.interval(200*time.Microsecond, c.bytes)
		}
		if s := ITRState(tr.state.Load()); s != c.state || Rate(tr.rate.Load()) != c.rate || tr.gap != c.gap {
			t.Errorf("ITR-1: %d bytes/µs: %v at %d/s, gap %v, after %d intervals; want %v at %d/s, gap %v",
				c.bytes/200, s, tr.rate.Load(), tr.gap, n, c.state, c.rate, c.gap)
		}
		if n < 10 {
			t.Errorf("ITR-1: %d intervals from one rate to the next: no smoothing", n)
		}
	}
}

// TestITRInterval: bytes of polls that end within a gap count for the longer interval.
func TestITRInterval(t *testing.T) {
	tr := new(throttle)
	tr.init(ITR{Policy: ITRDynamic}, time.Hour)
	tr.add(10, 2100)
	tr.finish(time.Hour + 100*time.Microsecond)
	if s := ITRState(tr.state.Load()); s != ITRBulk {
		t.Errorf("ITR-1: 2100 bytes in the first 100 µs: %v, want bulk", s)
	}

	tr = dynamic()
	if s, _ := tr.interval(49*time.Microsecond, 2000); s != ITRLow {
		t.Errorf("ITR-1: a poll that finished within the gap changed the state to %v", s)
	}
	if s, _ := tr.interval(100*time.Microsecond, 100); s != ITRBulk {
		t.Errorf("ITR-1: 2100 bytes in 100 µs: %v, want bulk", s)
	}
	if s, _ := tr.interval(100*time.Microsecond, 2000); s != ITRLow {
		t.Errorf("ITR-1: 2000 bytes in the next 100 µs: %v, want low", s)
	}
}

// TestITRPolicies: only the dynamic policy follows the traffic.
func TestITRPolicies(t *testing.T) {
	for _, c := range []struct {
		itr  ITR
		rate Rate
		gap  time.Duration
	}{
		{ITR{}, 0, 0},
		{ITR{Policy: ITRStatic, Rate: 4_000}, 4_000, 250 * time.Microsecond},
	} {
		var tr throttle
		tr.init(c.itr, 0)
		tr.interval(time.Millisecond, 1_000_000)
		if r := Rate(tr.rate.Load()); r != c.rate || tr.gap != c.gap {
			t.Errorf("%+v: %d/s, gap %v; want %d/s, %v", c.itr, r, tr.gap, c.rate, c.gap)
		}
	}
}

// TestGap: the engine keeps the gap by arming late, in both modes.
func TestGap(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"the first interrupt is not delayed", "turn +1s velo+1 turn", "mask velo, poll velo 1/4, look"},
		{"not armed within the gap", "turn velo+1 turn +20µs turn", "sleep 30µs"},
		{"what comes meanwhile waits", "turn velo+1 turn +20µs turn velo+3 +29µs turn", "sleep 1µs"},
		{"and is found when the gap is over", "turn velo+1 turn +20µs turn velo+3 +30µs turn", "pending velo, poll velo 3/4, look"},
		{"armed after it", "turn velo+1 turn +50µs turn", "arm velo, sleep"},
		{"a full budget is polled on within it", "turn velo+9 turn turn", "poll velo 4/4, look"},
		{"the other source does not wait", "turn velo+1 turn rma+1 turn", "mask rma, poll rma 1/4, again"},
		{"the shorter gap decides", "turn rma+1 turn turn +20µs velo+1 turn turn", "sleep 50µs"},
	} {
		t.Run("ITR-1 "+c.name, func(t *testing.T) {
			r := newRig(t, Config{})
			r.add("velo", 4, ITR{Policy: ITRStatic, Rate: 20_000})
			r.add("rma", 4, ITR{Policy: ITRStatic, Rate: 10_000})
			if got := r.run(c.script); got != c.want {
				t.Errorf("%s:\n got %s\nwant %s", c.script, got, c.want)
			}
		})
	}
	r := newRig(t, Config{Mode: InterruptDriven})
	r.add("velo", 4, ITR{Policy: ITRStatic, Rate: 20_000})
	if got, want := r.run("turn velo+9 turn turn"), "sleep 50µs"; got != want {
		t.Errorf("DRV-2 interrupt mode: %s, want %s", got, want)
	}
	if got, want := r.run("+50µs turn"), "pending velo, mask velo, poll velo 4/4, again"; got != want {
		t.Errorf("DRV-2 interrupt mode: %s, want %s", got, want)
	}
}

// TestDynamicITR: the engine feeds the throttle, even while it busy-polls.
func TestDynamicITR(t *testing.T) {
	for _, window := range []time.Duration{0, DefaultBusyPoll} {
		r := newRig(t, Config{BusyPoll: window})
		velo := r.add("velo", 64, ITR{Policy: ITRDynamic})
		state := func(bytesPerMicro int) ITRState {
			velo.size = bytesPerMicro * 20 // one packet each 20 µs
			for range 1000 {
				velo.arrive(1)
				r.eng.Turn()
				r.clock.now += 20 * time.Microsecond
			}
			return velo.src.Stats().ITRState
		}
		for _, c := range []struct {
			throughput int
			want       ITRState
		}{{100, ITRBulk}, {15, ITRLow}, {5, ITRLowest}, {21, ITRBulk}} {
			if got := state(c.throughput); got != c.want {
				t.Errorf("ITR-1: window %v, %d bytes/µs: %v, want %v", window, c.throughput, got, c.want)
			}
		}
	}
}
