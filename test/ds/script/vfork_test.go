package script_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// A child of vfork has its parent's memory, and changes nothing of what the library keeps
// there; where it would, vfork runs as fork.
func TestVfork(t *testing.T) {
	program := ds.Build(t, "vforked", nil, "vforked.c")
	for _, test := range []struct{ mode, library string }{
		{"quiet", "borrows"}, {"joined", "borrows"}, {"busy", "copies"}, {"threads", "copies"},
	} {
		for _, preloaded := range []bool{false, true} {
			want := "borrows"
			var env []string
			if preloaded {
				want, env = test.library, ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_CALLS=8", "EXN_DS_VERBOSE=1")
			}
			cmd := exec.CommandContext(t.Context(), program, test.mode)
			cmd.Env = append(os.Environ(), env...)
			var said bytes.Buffer
			cmd.Stderr = &said
			got, err := cmd.Output()
			if err != nil || strings.TrimSpace(string(got)) != want {
				t.Errorf("%s, with the library: %v: %q, %v, want %q\n%s", test.mode, preloaded, got, err, want, &said)
			}
			if lanes := strings.Count(said.String(), " has lane "); preloaded && lanes < 6 {
				t.Errorf("%s: %d ends had lanes, want some of each connection\n%s", test.mode, lanes, &said)
			}
		}
	}
}
