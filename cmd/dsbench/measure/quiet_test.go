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
