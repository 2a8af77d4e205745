package stream_test

import (
	"fmt"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/ds"
)

// A reader that takes a byte at a time, of which the writer is told when it is worth it, rings for each if
// it does not know slots_due. Such a peer is no liar. What it takes of TCP, or only looks at, is nothing
// to ring for.
func TestSmallReads(t *testing.T) {
	program := ds.Build(t, "crumbs", nil, "crumbs.c")
	for way, stuck := range map[string]string{
		"poll read": "100", "level read": "100", "edge read": "100", "block read": "100", "block peek": "10000", "block backlog": "10000",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			lanes, text, err := preloaded(t, append([]string{program}, strings.Fields(way)...), "EXN_DS_SLOTS=16", "EXN_DS_STUCK_MS="+stuck, "EXN_DS_TEST_EAGER=1")
			if err != nil || lanes != 2 || strings.Contains(text, "hostile") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// Who waits for room is woken when there is enough, not for each of 20,000 reads of a byte.
func TestSmallReadsWakeSeldom(t *testing.T) {
	program := ds.Build(t, "crumbs", nil, "crumbs.c")
	for _, way := range []string{"poll", "level", "edge", "block"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			lanes, text, err := preloaded(t, []string{program, way, "read"})
			var sleeps int
			last := text[strings.LastIndex(strings.TrimSuffix(text, "\n"), "\n")+1:]
			if n, _ := fmt.Sscanf(last, "%d sleeps", &sleeps); n != 1 || err != nil || lanes != 2 || sleeps > 2000 {
				t.Errorf("%v, %d lanes\n%s", err, lanes, text)
			}
			t.Log(last)
		})
	}
}

// What the writer says that it waits for is what it looks for.
func TestRoomIsDue(t *testing.T) {
	out, err := exec.Command(ds.Build(t, "room", []string{"-I", ds.Headers()}, "room.c", ds.Object(t))).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
