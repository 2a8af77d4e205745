// Package debroot has real programs for tests, from Debian packages that are
// unpacked and not installed: exnet/internal/debroot, which measures the same
// programs and says how it works, with a skip where there are no packages.
//
//	root := debroot.Need(t, "redis-server", "iperf3")
//	cmd := root.Command(ctx, "redis-server", "--port", "0")
//
// EXN_DEBIAN=trixie has all tests use the programs of that release instead of those
// of the machine's own. Not each test can: packages change their names, and programs
// what they say.
package debroot

import (
	"errors"
	"os"
	"testing"

	"exnet/internal/debroot"
)

// Root is a set of unpacked packages.
type Root = debroot.Root

// Need opens the packages for a test. It skips the test when they cannot be
// had, and ends it when there are no such packages.
func Need(tb testing.TB, packages ...string) *Root {
	tb.Helper()
	return NeedRelease(tb, os.Getenv("EXN_DEBIAN"), packages...)
}

// NeedRelease is Need for packages of another Debian release, such as trixie.
func NeedRelease(tb testing.TB, release string, packages ...string) *Root {
	tb.Helper()
	root, err := debroot.OpenRelease(tb.Context(), release, packages...)
	if errors.Is(err, debroot.ErrUnavailable) {
		tb.Skip(err)
	}
	if err != nil {
		tb.Fatal(err)
	}
	return root
}
