package stream_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Who sleeps is told of what other threads and processes bring about, also through sets in sets and beside others that
// ask the same set: as TCP tells it, whatever the size of the lane.
func TestToldOfWhatOthersDo(t *testing.T) {
	program := ds.Build(t, "told", nil, "told.c")
	small := []string{"EXN_DS_HOT=0", "EXN_DS_WINDOW=16384", "EXN_DS_WINDOWS=2", "EXN_DS_SLOTS=16", "EXN_DS_SPIN_US=0"}
	for name, test := range map[string]struct {
		library  string
		settings []string
	}{
		"spinning": {ds.Library(t), nil},
		"small":    {ds.Library(t), small},
		"delayed":  {ds.Delayed(t), small},
		"tardy":    {ds.Tardy(t), append([]string{"TARDY=looks"}, small...)},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, "16")
			// Without EXN_DS_STUCK_MS: by TCP, a full connection has room again when it likes.
			cmd.Env = append(os.Environ(), ds.Preload(test.library, ds.Fabric(t), append(test.settings, "EXN_DS_VERBOSE=1", "EXN_DS_STUCK_MS=0")...)...)
			var said, log strings.Builder
			cmd.Stdout, cmd.Stderr = &said, &log
			err := cmd.Run()
			if n := strings.Count(log.String(), " has lane "); err != nil || n < strings.Count(said.String(), "\n") {
				t.Errorf("%v, %d ends on lanes\n%s\n%s", err, n, said.String(), log.String())
			}
			lines, byTCP := 0, 0
			for line := range strings.Lines(said.String()) {
				lines++
				if strings.Contains(line, "by TCP") { // filled before the lane was there
					byTCP++
					t.Log(line)
					continue
				}
				if strings.Contains(line, "NOT TOLD") || strings.Contains(line, "BUSY") || strings.Contains(line, "died") {
					t.Error(line)
				}
			}
			if byTCP > lines/10 {
				t.Errorf("%d of %d scenes filled TCP instead of a lane", byTCP, lines)
			}
		})
	}
}
