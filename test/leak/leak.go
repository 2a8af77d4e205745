// Package leak fails a test binary that leaves something behind.
//
// A package whose tests start goroutines or open descriptors uses it once:
//
//	func TestMain(m *testing.M) { leak.Main(m) }
//
// After the tests have passed, no goroutine may be running and no file descriptor may be open that
// was not there before. Those that end by themselves get a second to do so.
//
// It looks at the whole process, so it cannot say which test leaked: run the tests one by one with
// -run to find out. It does not look at memory mappings.
package leak

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long something that is about to end may take, such as a descriptor whose last
// user has yet to notice that it was closed. Nothing here runs the garbage collector, which would
// close forgotten files and so hide them.
const patience = time.Second

// Main runs the tests of m and exits with their code, or with 1 if they passed but left goroutines
// or descriptors behind. The options go to goleak.
func Main(m *testing.M, options ...goleak.Option) {
	before, err := openAll()
	if err != nil {
		fmt.Fprintln(os.Stderr, "leak:", err)
		os.Exit(1)
	}
	code := m.Run()
	if code == 0 {
		if err := errors.Join(goleak.Find(options...), findDescriptors(before)); err != nil {
			fmt.Fprintln(os.Stderr, "leak:", err)
			code = 1
		}
	}
	os.Exit(code)
}

// descriptors counts open descriptors by what they refer to. Their numbers are reused and tell
// nothing.
type descriptors map[string]int

// openAll returns the descriptors that are open now. First it makes the runtime open those of its
// network poller, which it would otherwise open during the tests.
func openAll() (descriptors, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot open a pipe: %w", err)
	}
	r.Close()
	w.Close()
	return list()
}

func list() (descriptors, error) {
	const dir = "/proc/self/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("cannot list open descriptors: %w", err)
	}
	open := make(descriptors)
	for _, e := range entries {
		target, err := os.Readlink(filepath.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the descriptor of ReadDir
		}
		if err != nil {
			return nil, fmt.Errorf("cannot name descriptor %s: %w", e.Name(), err)
		}
		if strings.HasPrefix(target, published) {
			continue
		}
		open[target]++
	}
	return open, nil
}

// published is what package directsockets publishes about a process that uses it, as long as the
// process lives.
const published = "/memfd:exn-ds-family "

// profiling reports whether a profile was requested whose file package testing leaves open.
func profiling() bool {
	for _, name := range []string{"test.cpuprofile", "test.trace"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return false
}

// findDescriptors returns an error that names the descriptors that are open now and were not
// before.
func findDescriptors(before descriptors) error {
	if profiling() {
		return nil
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(patience / 20) {
		now, err := list()
		if err != nil {
			return err
		}
		var left []string
		for _, target := range slices.Sorted(maps.Keys(now)) {
			if n := now[target] - before[target]; n > 0 {
				left = append(left, fmt.Sprintf("%d × %s", n, target))
			}
		}
		if left == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("descriptors left open: %s", strings.Join(left, ", "))
		}
	}
}
