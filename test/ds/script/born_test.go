package script_test

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Connections that threads open and close while another thread starts processes, or changes its
// user, are neither mixed up with others nor broken off: what a fork copies and what it has counted
// are the same, and who takes one back to TCP means no other that has got its number meanwhile.
func TestStartAmidConnections(t *testing.T) {
	program, seconds := ds.Build(t, "born", nil, "born.c"), "2"
	if ds.Long() {
		seconds = "20"
	}
	prompt, tardy := ds.Library(t), ds.Tardy(t)
	for _, c := range []struct{ name, how, library string }{
		{"fork", "fork", prompt},
		{"exec", "exec", prompt},
		{"vfork", "vfork", prompt},
		{"spawn", "spawn", prompt},
		{"seteuid", "seteuid", prompt},
		{"spawn, late", "spawn", tardy},
		{"seteuid, late", "seteuid", tardy},
	} {
		t.Run(c.name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, c.how, seconds)
			cmd.Env = append(os.Environ(), ds.Preload(c.library, ds.Fabric(t), "EXN_DS_CALLS=1", "EXN_DS_VERBOSE=1")...)
			var said bytes.Buffer
			cmd.Stderr = &said
			got, err := cmd.Output()
			lines := strings.Split(strings.TrimSpace(said.String()), "\n")
			if err != nil {
				t.Fatalf("%v\n%s", err, strings.Join(lines[max(0, len(lines)-9):], "\n"))
			}
			lanes := strings.Count(said.String(), " has lane ")
			if t.Logf("%sof their ends %d had lanes", got, lanes); lanes < 100 {
				t.Errorf("of the connections' ends %d had lanes, want more", lanes)
			}
		})
	}
}
