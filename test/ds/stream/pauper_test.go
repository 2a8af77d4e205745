package stream_test

import (
	"testing"

	"exnet/test/ds"
)

// Who finds no window goes on by TCP once SWITCH is taken, asleep too: both ends may write before they read.
func TestBothWriteWithoutWindow(t *testing.T) {
	lanes, text, err := preloaded(t, []string{ds.Build(t, "pauper", nil, "pauper.c")}, "EXN_DS_CALLS=1", "EXN_DS_WINDOWS=1")
	if err != nil || lanes < 20 {
		t.Errorf("%v\n%s", err, text)
	}
}
