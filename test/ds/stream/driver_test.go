package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Room is told to a thread that waits in an edge-triggered set, also if it went to sleep while
// there was some and another thread has filled the lane since.
func TestOneWaitsAnotherWrites(t *testing.T) {
	drive(t, "100 65536 0", "100 300000 500", "20 1000 0", "5 1000 2000")
}

// Bytes that TCP brings are told to who sleeps in a set, also while another thread looks at the
// same connection for another set.
func TestTwoSets(t *testing.T) { drive(t, "5000") }

func drive(t *testing.T, plays ...string) {
	program := ds.Build(t, "driver", nil, "driver.c")
	for name, library := range map[string]string{"": ds.Library(t), " delayed": ds.Delayed(t)} {
		for _, spin := range []string{"50", "0"} {
			for _, args := range plays {
				t.Run(args+" "+spin+name, func(t *testing.T) {
					ctx, cancel := context.WithTimeout(t.Context(), patience)
					defer cancel()
					cmd := exec.CommandContext(ctx, program, strings.Fields(args)...)
					cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), "EXN_DS_VERBOSE=1", "EXN_DS_SPIN_US="+spin)...)
					text, err := cmd.CombinedOutput()
					if err != nil || bytes.Count(text, []byte(" has lane ")) != 2 {
						t.Errorf("%v\n%s", err, text)
					}
				})
			}
		}
	}
}
