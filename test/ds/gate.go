package ds

import (
	"os"
	"testing"
)

// Experiment skips a test that judges the library, which is an unfinished
// experiment whose known faults may fail it in one run and not in the next.
// EXN_TEST_DS=1 runs it all the same.
func Experiment(t testing.TB) {
	t.Helper()
	if !experimenting() {
		t.Skip("directsockets is unfinished: set EXN_TEST_DS=1 to run its tests")
	}
}

func experimenting() bool { return os.Getenv("EXN_TEST_DS") == "1" }
