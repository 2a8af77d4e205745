package stream_test

import (
	"os"
	"testing"

	"exnet/test/ds"
)

// A program may have connections of several network namespaces. What the kernel says of one in another says nothing.
func TestMoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("it takes root to make a network namespace")
	}
	program := []string{ds.Build(t, "moved", nil, "moved.c")}
	if lanes, text, err := preloaded(t, program); err != nil || lanes != 4 {
		t.Errorf("%v, %d ends with lanes\n%s", err, lanes, text)
	}
}
