package dissect

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var anywhere = [2]int{-1, -1}

// configs returns the ways of waiting.
func configs(t *testing.T) map[string]Config {
	t.Helper()
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	var cpus []int
	for cpu := range 1024 {
		if may.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	if len(cpus) < 2 {
		t.Skip("needs two CPUs, one for each side")
	}
	apart := [2]int{cpus[0], cpus[1]}
	return map[string]Config{
		"polling": {Size: 64, Rounds: 20_000, CPUs: apart},
		"asleep":  {Size: 64, Rounds: 400, Asleep: true, Pause: 100 * time.Microsecond, CPUs: apart},
	}
}

func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func names(r Result) (names []string) {
	for _, s := range r.Steps {
		names = append(names, s.Name)
	}
	return names
}

// The steps are the expected ones, and add up to the round trips without stamps. Other work on the
// machine makes the one or the other longer at times, and the race detector everything but stamps.
func TestAddsUp(t *testing.T) {
	want := map[string][]string{"polling": {"post", "way", "copy", "credit"}, "asleep": {"post", "look", "wake", "way", "copy", "credit"}}
	for name, c := range configs(t) {
		const tries = 10
		for try := 1; ; try++ {
			r := run(t, c)
			sum := 0.0
			for _, s := range r.Steps {
				sum += s.Time
			}
			if !slices.Equal(names(r), want[name]) || math.Abs(sum-r.Sum) > 1e-6*r.Sum || r.Sum <= 0 || r.Whole <= 0 {
				t.Fatalf("%s: %+v", name, r)
			}
			if raced || math.Abs(r.Whole-r.Sum) < r.Whole/4 {
				break
			}
			if try == tries {
				t.Errorf("%s: the steps sum up to %.0f ns, and the whole takes %.0f", name, r.Sum, r.Whole)
				break
			}
		}
	}
}

// A slower step shows in its own time and in the whole.
func TestSlowStepShows(t *testing.T) {
	for name, c := range configs(t) {
		c.slowness = 100 * time.Microsecond
		if !c.Asleep {
			c.Rounds /= 10
		}
		for m, s := range steps {
			if s.Name == "" || !slices.Contains(c.way(), milestone(m)) {
				continue
			}
			c.slow = milestone(m)
			r := run(t, c)
			both := 2 * float64(c.slowness)
			i := slices.IndexFunc(r.Steps, func(each Step) bool { return each.Name == s.Name })
			if i < 0 || r.Steps[i].Time < both*0.9 || r.Whole < both*0.9 {
				t.Errorf("%s, %s: %+v", name, s.Name, r)
			}
		}
	}
}

// Every size makes the round trip: through slots and through the window.
func TestSizes(t *testing.T) {
	for _, size := range []int{1, 7, 120, 121, 4096, 100_000, largest} {
		if r := run(t, Config{Size: size, Rounds: 100, CPUs: anywhere}); r.Sum <= 0 {
			t.Errorf("%d bytes: %+v", size, r)
		}
	}
}

// Run stops when it is told to, whether its sides poll or sleep.
func TestStops(t *testing.T) {
	for name, c := range configs(t) {
		why := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		c.Rounds, c.Pause = 5_000_000, 0 // takes seconds
		if c.Asleep {
			c.Rounds = 200_000
		}
		time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
		if _, err := Run(ctx, c); !errors.Is(err, why) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A late ring, for a message that was seen without it, wakes the sleeper. The next message wakes it
// again.
func TestLateRing(t *testing.T) {
	var over atomic.Bool
	sides, err := makeSides(&Config{Size: 64, Rounds: 1, Asleep: true}, &over)
	if err != nil {
		t.Fatal(err)
	}
	defer sides[0].close()
	defer sides[1].close()
	slept := make(chan struct{})
	go func() {
		defer close(slept)
		sides[1].sleep()
	}()
	asleep := func() bool { // and has heard each ring so far
		bell := []unix.PollFd{{Fd: int32(sides[1].bell), Events: unix.POLLIN}}
		n, err := unix.Poll(bell, 0)
		return err == nil && n == 0 && sides[0].peer.Asleep(waiter) != 0
	}
	for late := range 3 {
		for !asleep() {
			time.Sleep(time.Millisecond)
		}
		sides[0].ring(nothing, &sides[0].theirs.RxWaiters)
		if sides[0].rung == 0 {
			t.Fatalf("late ring %d: nobody slept", late)
		}
	}
	for !asleep() {
		time.Sleep(time.Millisecond)
	}
	if err := sides[0].send(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-slept:
	case <-time.After(time.Minute):
		t.Error("who sleeps is not woken by a message after a late ring")
		over.Store(true)
		sides[1].wake()
		<-slept
	}
}

func TestRefuses(t *testing.T) {
	for _, c := range []Config{{}, {Size: 64}, {Size: largest + 1, Rounds: 1}, {Size: 64, Rounds: 1, Pause: -1}, {Size: 64, Rounds: 1, CPUs: [2]int{4000, 0}}} {
		if r, err := Run(t.Context(), c); err == nil {
			t.Errorf("%+v: %+v", c, r)
		}
	}
}
