package stream_test

import (
	"strings"
	"testing"

	"exnet/test/ds"
)

// A thread may have descriptors of its own. What it closes there stays open for the others.
func TestApart(t *testing.T) {
	program := ds.Build(t, "apart", nil, "apart.c")
	for _, how := range []string{"unshare", "raw", "range", "dup"} {
		for _, who := range []string{"server", "client"} {
			t.Run(how+" "+who, func(t *testing.T) {
				t.Parallel()
				lanes, text, err := preloaded(t, []string{program, how, who})
				if err != nil || lanes < 2 || !strings.Contains(text, ": shared between processes") {
					t.Errorf("%d ends had a lane: %v\n%s", lanes, err, text)
				}
			})
		}
	}
}
