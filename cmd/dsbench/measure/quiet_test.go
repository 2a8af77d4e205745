package measure

import (
	"os/exec"
	"testing"
	"time"
)

// A run beside which another program takes a processor is noisy, and made once more. What the
// run itself has started is not foreign.
func TestQuietSeesOtherPrograms(t *testing.T) {
	burn := func() (used func() time.Duration) {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() time.Duration {
			cmd.Process.Kill()
			cmd.Wait() // it was killed
			return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
		}
	}
	var q Quiet
	nobody := func() []int { return nil }
	const long = 400 * time.Millisecond
	runs := 0
	end := burn()
	noisy, err := q.Run(nobody, func() (time.Duration, error) { runs++; time.Sleep(long); return 0, nil })
	end()
	if err != nil || !noisy || runs != 2 {
		t.Errorf("beside a program that is always busy: noisy %v after %d runs, %v", noisy, runs, err)
	}

	// On a machine with other users this may be noisy, too, but never because of the run's own.
	start, before := time.Now(), CPUTime()
	w, err := NewWatch(nil)
	if err != nil {
		t.Fatal(err)
	}
	end = burn()
	time.Sleep(long)
	used := end()
	without, err := w.Foreign()
	if err != nil {
		t.Fatal(err)
	}
	w.Ended(used + CPUTime() - before)
	with, err := w.Foreign()
	if err != nil {
		t.Fatal(err)
	}
	if share := float64(used) / float64(time.Since(start)); without-with < share/2 {
		t.Errorf("what the run itself used, %.2f of a CPU, is taken for foreign: %.2f and %.2f", share, without, with)
	}
}

// idleHalf does nothing.
type idleHalf struct{}

func (idleHalf) Words() []uint64         { return nil }
func (idleHalf) Meet([]uint64) error     { return nil }
func (idleHalf) Run(int) (Sample, error) { return Sample{}, nil }
func (idleHalf) Close() error            { return nil }

// A run of a session is noisy if the processor of either side is slower than it was before;
// where there is a better detector, no time is spent on that.
func TestSlowProcessorIsNoisy(t *testing.T) {
	faster := &Yardstick{best: 1} // than any processor
	slow, err := run(idleHalf{}, 1, faster)
	if err != nil {
		t.Fatal(err)
	}
	none, err := run(idleHalf{}, 1, nil)
	if err != nil || none.Slower != 0 {
		t.Errorf("without a yardstick: slower by %v, %v", none.Slower, err)
	}
	for _, r := range []struct {
		Result
		noisy bool
	}{{Result{Lead: slow}, true}, {Result{Follow: slow}, true}, {Result{Lead: none, Follow: none}, false}} {
		if r.Noisy() != r.noisy {
			t.Errorf("slower by %v and %v: noisy is %v", r.Lead.Slower, r.Follow.Slower, r.Noisy())
		}
	}
}
