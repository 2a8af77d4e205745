package script_test

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/test/ds"
)

// Who sleeps on one connection again and again makes one system call for it, and is told of its
// end, also where it sleeps on others in turn, or its signal handlers do.
func TestSleepsOnOne(t *testing.T) {
	counter := ds.Build(t, "alone-counter", []string{"-DCOUNTER", "-shared", "-fPIC"}, "alone.c")
	program := ds.Build(t, "alone", nil, "alone.c")
	for _, how := range []string{"read", "recv-timed", "poll", "poll-timed", "old-kernel", "select", "turns", "handlers"} {
		t.Run(how, func(t *testing.T) {
			run := func() error {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, how)
				cmd.WaitDelay = time.Second
				cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_REQUIRE=1", "EXN_DS_SPIN_US=0")...)
				for i, v := range cmd.Env {
					if strings.HasPrefix(v, "LD_PRELOAD=") {
						cmd.Env[i] = v + ":" + counter
					}
				}
				text, err := cmd.CombinedOutput()
				t.Logf("%s", text)
				return err
			}
			err := run()
			for tries := 1; err != nil && tries < 3; tries++ { // on a busy machine it may not sleep
				err = run()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
}
