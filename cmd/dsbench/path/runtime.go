package path

import (
	"fmt"
	"os"
	"path/filepath"

	"exnet/fabric/shm"
)

// Runtime makes a private directory for a fabric, where fabric directories are by default,
// so that what is measured is what users get: that is memory mostly, on which sockets are
// made and removed faster than on a disk.
func Runtime() (string, error) {
	dir, err := os.MkdirTemp(filepath.Dir(shm.DefaultDir()), "dsbench-")
	if err != nil {
		dir, err = os.MkdirTemp("", "dsbench-")
	}
	if err != nil {
		return "", fmt.Errorf("make a private directory: %w", err)
	}
	return dir, nil
}
