package stream_test

import (
	"testing"

	"exnet/test/ds"
)

// The kernel tells in several answers how many bytes it has passed on. Where more come between them, a
// connection gets its lane all the same.
func TestCountsWhatPours(t *testing.T) {
	program := ds.Build(t, "pouring", nil, "pouring.c")
	slow := ds.Build(t, "pouring.so", []string{"-shared", "-fPIC"}, "pouring.c")
	lanes, text, err := preloaded(t, []string{program}, "LD_PRELOAD="+ds.Library(t)+":"+slow)
	if err != nil || lanes != 2 {
		t.Errorf("%v\n%s", err, text)
	}
}
