package script_test

import (
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// A call that succeeds leaves errno alone. nuttcp gave up where it did not, when the
// library had looked for a quota that is not there.
func TestErrnoStays(t *testing.T) {
	program := ds.Build(t, "untouched", []string{"-O2"}, "untouched.c")
	play := func(t *testing.T, env ...string) {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%v\n%s", err, out)
		}
	}
	t.Run("plain", func(t *testing.T) { play(t) })
	t.Run("library", func(t *testing.T) { play(t, ds.Preload(ds.Library(t), ds.Fabric(t))...) })
}
