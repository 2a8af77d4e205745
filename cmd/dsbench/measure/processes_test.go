package measure

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

func TestParseBusy(t *testing.T) {
	// user nice system idle iowait irq softirq steal guest guest_nice
	got, err := parseBusy("cpu  100 20 300 9999 77 4 50 6 1 1\n")
	if want := 480 * tick; err != nil || got != want {
		t.Errorf("%v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "cpu 1 2 3", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 seven 8"} {
		if _, err := parseBusy(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
}

// burn keeps a CPU busy in another process until it is killed.
func burn(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("/bin/sh", "-c", "while :; do :; done")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	return cmd
}

// What a process burns is its own CPU time, and foreign to a watch that does
// not know of it.
func TestWatchSeesOthersOnly(t *testing.T) {
	other := burn(t)
	blind, err := NewWatch([]int{os.Getpid()})
	if err != nil {
		t.Fatal(err)
	}
	knowing, err := NewWatch([]int{os.Getpid(), other.Process.Pid})
	if err != nil {
		t.Fatal(err)
	}
	for spent := time.Duration(0); spent < 300*time.Millisecond; time.Sleep(time.Millisecond) {
		if spent, err = ProcessCPU(other.Process.Pid); err != nil {
			t.Fatal(err)
		}
	}
	all, err := blind.Foreign()
	if err != nil {
		t.Fatal(err)
	}
	rest, err := knowing.Foreign()
	if err != nil {
		t.Fatal(err)
	}
	// Whatever else runs on the machine is in both.
	if all-rest < 0.05 {
		t.Errorf("foreign is %.2f with the other process and %.2f without", all, rest)
	}
}

func TestProcessCPUOfNobody(t *testing.T) {
	cmd := burn(t)
	cmd.Process.Kill()
	cmd.Wait()
	if d, err := ProcessCPU(cmd.Process.Pid); err == nil {
		t.Errorf("a process that has ended has used %v", d)
	}
}
