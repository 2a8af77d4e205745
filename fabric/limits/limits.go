// Package limits says what the kernel lets this process have.
package limits

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory is the least of the machine's memory, the limits of our cgroups (of both
// versions) and RLIMIT_AS, in bytes.
func Memory() int64 {
	limit := int64(1) << 62
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		limit = min(limit, int64(si.Totalram)*int64(si.Unit))
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &r) == nil && r.Cur < uint64(limit) {
		limit = int64(r.Cur)
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return min(limit, cgroupLimit("/sys/fs/cgroup", string(groups)))
}

// cgroupLimit reads the lowest memory limit on the way from our cgroup to the
// root, for both versions of the interface.
func cgroupLimit(root, groups string) int64 {
	limit := int64(1) << 62
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		base, file := root, "memory.max"
		if f[1] != "" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			base, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		for dir := filepath.Clean("/" + f[2]); ; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(base, dir, file))
			if n, perr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && perr == nil {
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
