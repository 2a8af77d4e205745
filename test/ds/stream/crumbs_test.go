package stream_test

import (
	"strings"
	"testing"

	"exnet/test/ds"
)

// A reader that takes a byte at a time rings for each, of which the writer is told when it is worth it. Such
// a peer is no liar. What it takes of TCP, or only looks at, is nothing to ring for.
func TestSmallReads(t *testing.T) {
	program := ds.Build(t, "crumbs", nil, "crumbs.c")
	for way, stuck := range map[string]string{
		"poll read": "100", "level read": "100", "edge read": "100", "block read": "100", "block peek": "10000", "block backlog": "10000",
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			lanes, text, err := preloaded(t, append([]string{program}, strings.Fields(way)...), "EXN_DS_SLOTS=16", "EXN_DS_STUCK_MS="+stuck)
			if err != nil || lanes != 2 || strings.Contains(text, "hostile") {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}
