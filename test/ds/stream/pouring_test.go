package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// The kernel tells in several answers how many bytes it has passed on. Where more come between them, a
// connection gets its lane all the same.
func TestCountsWhatPours(t *testing.T) {
	program := ds.Build(t, "pouring", nil, "pouring.c")
	slow := ds.Build(t, "pouring.so", []string{"-shared", "-fPIC"}, "pouring.c")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	library := ds.Library(t)
	cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), "EXN_DS_VERBOSE=1", "LD_PRELOAD="+library+":"+slow)...)
	text, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(text, []byte(" has lane ")) != 2 {
		t.Errorf("%v\n%s", err, text)
	}
}
