package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// A reader that takes a byte at a time rings for each, of which the writer is told when it is worth it. Such
// a peer is no liar.
func TestSmallReads(t *testing.T) {
	program := ds.Build(t, "crumbs", nil, "crumbs.c")
	for _, way := range []string{"poll", "level", "edge"} {
		t.Run(way, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, way)
			cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
			text, err := cmd.CombinedOutput()
			if err != nil || bytes.Count(text, []byte(" has lane ")) != 2 || bytes.Contains(text, []byte("hostile")) {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
