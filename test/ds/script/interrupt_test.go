package script_test

import (
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// A handler that runs while a call spins on a lane ends it as it would have ended
// a sleep in the kernel.
func TestHandlersEndCallsThatSpin(t *testing.T) {
	library := ds.Library(t)
	program := ds.Build(t, "interrupt", nil, "interrupt.c")
	run := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", env, err, text)
		}
		return string(text)
	}
	want := run()
	for _, spin := range []string{"EXN_DS_SPIN_US=0", "EXN_DS_SPIN_US=100000"} { // asleep, and 100 ms of spinning first
		if got := run(ds.Preload(library, ds.Fabric(t), spin)...); got != want {
			t.Errorf("%s: TCP gives\n%sthe library\n%s", spin, want, got)
		}
	}
}
