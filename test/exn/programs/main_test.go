package programs

import (
	"testing"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// long skips a test in short mode.
func long(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: " + why)
	}
}
