// Package ofi runs tests with the libfabric of each Debian release that the
// fabric over it promises to work with. The packages are unpacked, not
// installed: a test runs itself again as a command that sees them in place.
//
//	func TestX(t *testing.T) {
//		if !ofi.Rerun(t) {
//			return // the commands have done it
//		}
//		…
//	}
package ofi

import (
	"os"
	"os/exec"
	"regexp"
	"testing"

	"exnet/test/debroot"
)

// releaseVariable tells a command which release it runs with.
const releaseVariable = "EXN_TEST_LIBFABRIC"

// releases are Debian's, by codename, as debroot wants them: the machine's own
// has none. The first is 12 with libfabric 1.17, the second 13 with 2.1.
var releases = []struct{ name, codename string }{{"bookworm", ""}, {"trixie", "trixie"}}

// link is what the installation of libpsm-infinipath1 would do, without which
// libfabric 1.17 does not load.
const link = `d=$(dirname "$(find /usr/lib -name libfabric.so.1 | head -n 1)")
[ ! -e /usr/lib/libpsm1/libpsm_infinipath.so.1.16 ] || ln -sf /usr/lib/libpsm1/libpsm_infinipath.so.1.16 "$d/libpsm_infinipath.so.1"
exec "$@"`

// Rerun runs the calling test once for each release, as subtests, and returns
// false; in the commands that it starts it returns true.
func Rerun(t *testing.T) bool {
	t.Helper()
	if Release() != "" {
		return true
	}
	for _, r := range releases {
		t.Run(r.name, func(t *testing.T) {
			cmd := Command(t, r.codename, "env", releaseVariable+"="+r.name, os.Args[0],
				"-test.run=^"+regexp.QuoteMeta(t.Name()[:len(t.Name())-len(r.name)-1])+"$", "-test.v", "-test.timeout=9m")
			out, err := cmd.CombinedOutput()
			if err != nil || testing.Verbose() {
				t.Logf("%s", out)
			}
			if err != nil {
				t.Errorf("with libfabric of %s: %v", r.name, err)
			}
		})
	}
	return false
}

// Release is that of the command that runs this, "bookworm" or "trixie"; empty elsewhere.
func Release() string { return os.Getenv(releaseVariable) }

// Command is a command that sees the libfabric of a release.
func Command(t *testing.T, codename string, args ...string) *exec.Cmd {
	t.Helper()
	root := debroot.NeedRelease(t, codename, "libfabric1", "libfabric-bin")
	return root.Command(t.Context(), "sh", append([]string{"-c", link, "sh"}, args...)...)
}
