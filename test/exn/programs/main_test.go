package programs

import (
	"testing"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// long skips a test that is not for every day.
func long(t *testing.T, why string) {
	t.Helper()
	if testing.Short() {
		t.Skip("short mode: " + why)
	}
}
