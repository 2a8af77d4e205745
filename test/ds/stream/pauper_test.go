package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// Who finds no window goes on by TCP once SWITCH is taken, asleep too: both ends may write before they read.
func TestBothWriteWithoutWindow(t *testing.T) {
	program := ds.Build(t, "pauper", nil, "pauper.c")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1", "EXN_DS_CALLS=1", "EXN_DS_WINDOWS=1")...)
	text, err := cmd.CombinedOutput()
	if err != nil || bytes.Count(text, []byte(" has lane ")) < 20 {
		t.Errorf("%v\n%s", err, text)
	}
}
