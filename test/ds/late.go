package ds

import (
	"os"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// untilVariable has the second, since 1970, from which on a run of all tests has little time
// left; test/suite sets it.
const untilVariable = "EXN_TESTS_UNTIL"

// Late says whether that is so. Sums over all seeds say little then.
func Late() bool {
	text, _ := unix.Getenv(untilVariable) // by os.Getenv, go test would keep no result
	until, err := strconv.ParseInt(text, 10, 64)
	late := err == nil && time.Now().Unix() >= until
	if late {
		os.Getenv(untilVariable) // it is not to keep this one
	}
	return late
}

// Hurry skips one of many seeds, or of many programs, when it is late: on a machine that
// others use, a run comes to its end all the same, and says what it left out.
func Hurry(t testing.TB) {
	t.Helper()
	if Late() {
		t.Skip("the run had little time left")
	}
}
