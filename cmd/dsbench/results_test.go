package main

import (
	"path/filepath"
	"testing"
)

// Each file of bench/results is a report that this dsbench reads and compares.
func TestResultsAreReports(t *testing.T) {
	files, err := filepath.Glob("../../bench/results/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no results in bench/results: %v", err)
	}
	for _, name := range files {
		r, err := read(name)
		if err != nil {
			t.Error(err)
			continue
		}
		if len(r.Rows) == 0 || r.Machine.CPU == "" || len(r.Machine.Command) == 0 {
			t.Errorf("%s says nothing, or not where it was measured", name)
		}
	}
}
