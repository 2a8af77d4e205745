package lane_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"exnet/test/ds"
)

var update = flag.Bool("update", false, "write the vectors anew")

const (
	preload = "../../../directsockets/preload"
	vectors = "../../../directsockets/testdata/lane"
)

// The scenes of record, each a life of a connection.
var scenes = []string{"forward", "close", "abort", "leave", "withdraw"}

// recorder builds the program that writes the vectors.
func recorder(t *testing.T) string {
	t.Helper()
	var sources []string
	headers := sha256.New()
	for _, pattern := range []string{"record/*.c", preload + "/*.c", "record/*.h", preload + "/*.h"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, name := range files {
			path, err := filepath.Abs(name)
			if err != nil {
				t.Fatal(err)
			}
			if filepath.Ext(path) == ".c" {
				sources = append(sources, path)
				continue
			}
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			headers.Write(text)
		}
	}
	include, err := filepath.Abs(preload)
	if err != nil {
		t.Fatal(err)
	}
	// Build knows a program again by its sources and flags. Headers are neither, and
	// they have what this is about.
	known := "-DHEADERS=" + hex.EncodeToString(headers.Sum(nil)[:8])
	return ds.Build(t, "record", []string{"-O0", "-I", include, known}, sources...)
}

// The library writes what the files hold.
func TestVectors(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the vectors are of little-endian machines, and lanes have the byte order of theirs")
	}
	program := recorder(t)
	for _, name := range append([]string{"layout", "slots"}, scenes...) {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), program, name)
			cmd.Env = append(os.Environ(), ds.Preload("", ds.Fabric(t),
				"EXN_DS_CALLS=1", "EXN_DS_LANES=2", "EXN_DS_SLOTS=16", "EXN_DS_WINDOW=16384", "EXN_DS_WINDOWS=2")...)
			var errors strings.Builder
			cmd.Stderr = &errors
			out, err := cmd.Output()
			if err != nil {
				t.Fatalf("%v: %s", err, errors.String())
			}
			path := filepath.Join(vectors, name+".txt")
			if *update {
				if err := os.WriteFile(path, out, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if where, differs := firstDifference(string(out), string(want)); differs {
				t.Errorf("%s: the library writes something else, first %s\nIf that is meant it is another version of the format; -update writes the file anew", path, where)
			}
		})
	}
}

// The library's writers go round in windows, and keep what is in them, as those of package lane do.
func TestRound(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), recorder(t), "round")
	cmd.Env = append(os.Environ(), ds.Preload("", ds.Fabric(t))...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// firstDifference shows the first line that differs.
func firstDifference(got, want string) (where string, differs bool) {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		line := func(of []string) string {
			if i < len(of) {
				return of[i]
			}
			return "(the end)"
		}
		if line(g) != line(w) {
			return "in line " + strconv.Itoa(i+1) + ":\n\t" + line(g) + "\nnot\n\t" + line(w), true
		}
	}
	return "", false
}
