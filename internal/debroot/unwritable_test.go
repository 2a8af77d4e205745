package debroot

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// onDisk is set where the test runs inside a mount namespace, to what it must say.
const onDisk = "DEBROOT_TEST_ON_DISK"

// Of a cache that is read-only or full the error says so, and what helps; it is not taken for a
// failure of what needs the packages.
func TestUnwritableCache(t *testing.T) {
	if want := os.Getenv(onDisk); want != "" {
		_, err := Open(t.Context(), "big")
		if err == nil || !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), cacheVariable) {
			t.Errorf("got %v, want %q", err, want)
		}
		return
	}
	a := newArchive(t)
	a.serve(t, "big", "1", "usr/share/big", strings.Repeat("1234567", 1<<12))
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ options, want string }{
		{"ro", "set EXNET_CACHE to a directory that you can write to"},
		{"nr_blocks=4", "free some space in "},
	} {
		disk := filepath.Join(t.TempDir(), "disk")
		if err := os.Mkdir(disk, 0o700); err != nil {
			t.Fatal(err)
		}
		mount := fmt.Sprintf(`mount -t tmpfs -o %s none "$0" || exit 77; exec "$@"`, c.options)
		cmd := exec.Command("sh", "-c", mount, disk, self, "-test.run=^TestUnwritableCache$", "-test.v")
		cmd.Env = append(os.Environ(), onDisk+"="+c.want, cacheVariable+"="+filepath.Join(disk, "cache"))
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
		out, err := cmd.CombinedOutput()
		if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == 77 {
			t.Skipf("no tmpfs can be mounted in a user namespace: %v %s", err, out)
		}
		if err != nil || !strings.Contains(string(out), "--- PASS: TestUnwritableCache") {
			t.Errorf("%s: %v\n%s", c.options, err, out)
		}
	}
}
