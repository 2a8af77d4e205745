// Package built finds the programs that make has built, for tests that run them.
//
//	cmd := exec.Command(built.Path(t, "exn-tun"), "version")
//
// go test does not see which programs a test runs. It would return a cached result when a program
// has changed but the test has not. With a file found here, the result depends on that file.
package built

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// Path returns the absolute path of a program or library in the directory that EXN_BIN names, or
// else in the bin directory of the checkout. It ends the test if there is none.
func Path(tb testing.TB, name string) string {
	tb.Helper()
	path, err := find(name)
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// start is the directory in which the test began, before a Chdir.
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
	// EXN_BIN has other builds of some programs, such as those with slow wake-ups (make
	// test-adverse).
	if dir := os.Getenv("EXN_BIN"); dir != "" {
		if file, err := os.Open(filepath.Join(dir, name)); err == nil {
			return file.Name(), file.Close()
		}
	}
	path := filepath.Join(top, "bin", name)
	// go test notes which files are opened, not which are run.
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("bin/%s is not built; run make", name)
	}
	if err != nil {
		return "", err
	}
	return path, file.Close()
}
