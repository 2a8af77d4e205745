package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// findProgram finds one of our programs: as given, beside this one, or in PATH.
func findProgram(name, given string) (string, error) {
	if given != "" {
		if _, err := os.Stat(given); err != nil {
			return "", fmt.Errorf("the program %s: %w; give its path with --daemon", name, err)
		}
		return filepath.Abs(given)
	}
	if self, err := os.Executable(); err == nil {
		if beside := filepath.Join(filepath.Dir(self), name); isFile(beside) {
			return beside, nil
		}
	}
	found, err := exec.LookPath(name)
	if err != nil {
		return "", fmt.Errorf("no program %s beside this one or in PATH: run make, or put it there", name)
	}
	return found, nil
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}
