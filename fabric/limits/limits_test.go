package limits

import (
	"os"
	"path/filepath"
	"testing"
)

func TestCgroupLimit(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"a/b/memory.max": "max\n", "a/memory.max": "1000000\n", "memory/c/memory.limit_in_bytes": "5000\n",
	} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]int64{
		"0::/a/b\n":                   1000000,
		"0::/\n":                      1 << 62,
		"5:cpu,memory:/c\n0::/a\n":    5000,
		"5:cpu:/c\n":                  1 << 62,
		"nonsense\n0::../../../a/b\n": 1000000,
	} {
		if got := cgroupLimit(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
}
