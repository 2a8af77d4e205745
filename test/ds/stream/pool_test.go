package stream_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"exnet/test/ds"
)

// Threads share an epoll set whose members are one-shot: each connection gets its lane,
// is told to one thread at a time, and to one whenever it is ready.
func TestPool(t *testing.T) {
	const conns = 100
	library, program := ds.Library(t), ds.Build(t, "pool", nil, "pool.c")
	plays, ends := 0, 0
	for _, mode := range [][]string{nil, {"et"}} {
		for _, clients := range []string{"1", "6"} {
			for _, threads := range []string{"1", "2", "3", "8"} {
				for seed := range ds.Seeds(t, 1) { // one at a time: each is a program of many threads
					args := append([]string{fmt.Sprint(seed), threads, clients, strconv.Itoa(conns), "20"}, mode...)
					t.Run(strings.Join(args, " "), func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						defer cancel()
						cmd := exec.CommandContext(ctx, program, args...)
						cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
						text, err := cmd.CombinedOutput()
						lanes := bytes.Count(text, []byte(" has lane "))
						t.Logf("%d of %d ends had lanes", lanes, 2*conns)
						plays, ends = plays+1, ends+lanes
						if err != nil || lanes == 0 {
							t.Errorf("%v\n%s", err, text)
						}
					})
				}
			}
		}
	}
	// Of one play few may have some: while the thread that asks for one is without a CPU,
	// the others' short connections come and go by TCP.
	if ends < plays*conns {
		t.Errorf("%d ends had lanes in %d plays of %d connections, want half of them", ends, plays, conns)
	}
}
