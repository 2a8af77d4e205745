package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"exnet/test/ds"
)

// A forked process that takes a lane touches few pages for it: servers fork for each connection.
func TestFewPages(t *testing.T) {
	const connections, most = 4, 200
	program := ds.Build(t, "pages", nil, "pages.c")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, strconv.Itoa(connections))
	cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
	var came, text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &came, &text
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s", err, &text)
	}
	if lanes := bytes.Count(text.Bytes(), []byte(" has lane ")); lanes != 2*connections {
		t.Errorf("%d ends have a lane:\n%s", lanes, &text)
	}
	faults := strings.Fields(came.String())
	if len(faults) != connections {
		t.Errorf("%q", faults)
	}
	for _, f := range faults {
		if n, err := strconv.Atoi(f); err != nil || n > most {
			t.Errorf("a process had %s page faults, %v", f, err)
		}
	}
	t.Logf("page faults: %v", faults)
}
