package script_test

import (
	"bytes"
	"os"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// Who is told of bytes on a lane is told of what the kernel had before.
func TestCausal(t *testing.T) {
	program := ds.Build(t, "causal", nil, "causal.c")
	for _, call := range []string{"poll", "select"} {
		for way, library := range map[string]string{"TCP": "", "lane": ds.Library(t)} {
			t.Run(call+" "+way, func(t *testing.T) {
				cmd := exec.CommandContext(t.Context(), program, call)
				cmd.Env = os.Environ()
				if library != "" {
					cmd.Env = append(cmd.Env, ds.Preload(library, ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
				}
				text, err := cmd.CombinedOutput()
				if err != nil {
					t.Errorf("%v\n%s", err, text)
				}
				if lanes := bytes.Count(text, []byte(" has lane ")); library != "" && lanes != 2 {
					t.Errorf("%d ends have a lane:\n%s", lanes, text)
				}
			})
		}
	}
}
