// Package debroot has real programs for tests, from Debian packages that are
// unpacked and not installed: exnet/cmd/dsbench/debroot, which measures the same
// programs and says how it works, with a skip where there are no packages.
//
//	root := debroot.Need(t, "redis-server", "iperf3")
//	cmd := root.Command(ctx, "redis-server", "--port", "0")
package debroot

import (
	"errors"
	"testing"

	"exnet/cmd/dsbench/debroot"
)

// Root is a set of unpacked packages.
type Root = debroot.Root

// Need opens the packages for a test. It skips the test when they cannot be
// had, and ends it when there are no such packages.
func Need(tb testing.TB, packages ...string) *Root {
	tb.Helper()
	root, err := debroot.Open(tb.Context(), packages...)
	if errors.Is(err, debroot.ErrUnavailable) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return root
}
