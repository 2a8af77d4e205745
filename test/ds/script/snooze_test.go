package script_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Who waits for a CPU and for many connections snoozes, and who does not wait or would be
// woken late does not; nor for a while who has found too little after it.
func TestSnoozesInCrowd(t *testing.T) {
	if _, err := os.Stat("/proc/self/schedstat"); err != nil {
		t.Skip("the kernel does not count how long threads wait for a CPU (/proc/PID/schedstat)")
	}
	program := ds.Build(t, "snooze", []string{"-I", ds.Headers()}, "snooze.c", ds.Object(t))
	out, err := exec.CommandContext(t.Context(), program).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if !strings.Contains(string(out), "did not wait") {
		t.Log("may not run before others: that it does not wait was not tried")
	}
}

// A CPU that is looked on is given to others, but not to who keeps it long.
func TestYields(t *testing.T) {
	program := ds.Build(t, "yield", []string{"-I", ds.Headers()}, "yield.c", ds.Object(t))
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
