package limits

import (
	"math"
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

func TestCgroupQuota(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"a/b": "max 100000\n", "a": "150000 100000\n", "a/c": "50000 100000\n", "d": "1 0\n"} {
		dir := filepath.Join(root, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "cpu.max"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	first := filepath.Join(root, "cpu", "e", "f")
	if err := os.MkdirAll(first, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"e/cpu.cfs_quota_us": "75000\n", "e/cpu.cfs_period_us": "100000\n", "e/f/cpu.cfs_quota_us": "-1\n", "e/f/cpu.cfs_period_us": "100000\n"} {
		if err := os.WriteFile(filepath.Join(root, "cpu", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]float64{
		"4:cpu,cpuacct:/e/f\n0::/\n": 0.75, "4:cpuset:/e\n": math.Inf(1), "1:cpu:/\n": math.Inf(1),
		"0::/a/b\n": 1.5, "0::/a/c\n": 0.5, "0::/\n": math.Inf(1), "0::/d\n": math.Inf(1), "5:cpu:/a\n": math.Inf(1), "0::/../a\n": 1.5,
	} {
		if got := cgroupQuota(root, groups); got != want {
			t.Errorf("%q: %v, want %v", groups, got, want)
		}
	}
}

func TestCgroupThrottled(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"cpu.stat": "usage_usec 7\n", "a/cpu.stat": "nr_periods 9\nnr_throttled 4\n", "a/b/cpu.stat": "nr_throttled 3\nthrottled_usec 1\n", "cpu/e/cpu.stat": "nr_throttled 5\n"} {
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for groups, want := range map[string]uint64{"0::/a/b\n": 7, "0::/a\n": 4, "0::/\n": 0, "4:cpu,cpuacct:/e/f\n0::/\n": 5, "": 0} {
		if got := cgroupThrottled(root, groups); got != want {
			t.Errorf("%q: %d, want %d", groups, got, want)
		}
	}
}
