package script_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Who is told by poll or epoll and reads until there is nothing is not held up by a question to
// the kernel each time; who is not told, is. Of an end all are told.
func TestToldAskLess(t *testing.T) {
	counter := ds.Build(t, "spared-counter", []string{"-DCOUNTER", "-shared", "-fPIC"}, "spared.c")
	program := ds.Build(t, "spared", nil, "spared.c")
	run := func(spin string) error {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_REQUIRE=1", "EXN_DS_SPIN_US="+spin)...)
		for i, v := range cmd.Env {
			if strings.HasPrefix(v, "LD_PRELOAD=") {
				cmd.Env[i] = v + ":" + counter
			}
		}
		text, err := cmd.CombinedOutput()
		t.Logf("spinning for %s µs: %s", spin, text)
		return err
	}
	for _, spin := range []string{"0", "100000"} {
		err := run(spin)
		for tries := 1; err != nil && tries < 3; tries++ { // on a busy machine it reads too late
			err = run(spin)
		}
		if err != nil {
			t.Error(err)
		}
	}
}
