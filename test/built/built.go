// Package built finds what make has built, for tests that run it.
//
//	cmd := exec.Command(built.Path(t, "exn-tun"), "version")
//
// It exists because go test does not see which programs a test runs: it would
// answer from its cache when a program has changed and the test has not. A file
// found here is one the result depends on.
package built

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Path returns the absolute path of a program or library in the directory that
// EXN_BIN names, or else in the bin directory of the checkout. It ends the test when that is not there.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	path, err := find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// start is where the test began, before a Chdir.
var start, startErr = os.Getwd()

func find(name string) (string, error) {
	top, err := start, startErr
	for err == nil {
		if _, err := os.Stat(filepath.Join(top, "go.mod")); err == nil {
			break
		}
		if top == filepath.Dir(top) {
			return "", fmt.Errorf("%s is not in a checkout of exnet", start)
		}
		top = filepath.Dir(top)
	}
	if err != nil {
		return "", err
	}
	// Other builds of some of them, as those with slow wake-ups (make test-adverse).
	if dir := os.Getenv("EXN_BIN"); dir != "" {
		if file, err := os.Open(filepath.Join(dir, name)); err == nil {
			return file.Name(), file.Close()
		}
	}
	path := filepath.Join(top, "bin", name)
	// go test notes what is opened, not what is run.
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("bin/%s is not built; run make", name)
	}
	if err != nil {
		return "", err
	}
	return path, file.Close()
}
