// Package limits says what the kernel lets this process have.
package limits

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// CPUs is how many this process may use: by affinity, and by the quotas of its cgroups
// (of both versions).
func CPUs() float64 {
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it there is no quota
	return min(float64(runtime.NumCPU()), cgroupQuota("/sys/fs/cgroup", string(groups)))
}

// cgroupQuota reads the lowest quota of CPU time on the way from our cgroup to the root.
func cgroupQuota(root, groups string) float64 {
	least := math.Inf(1)
	for line := range strings.Lines(groups) {
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3) // "0::/a/b", or of version 1 "4:cpu,cpuacct:/a/b"
		if len(fields) < 3 || fields[1] != "" && !slices.Contains(strings.Split(fields[1], ","), "cpu") {
			continue
		}
		top, files := root, []string{"cpu.max"} // "max" has no numbers
		if fields[1] != "" {
			top, files = filepath.Join(root, "cpu"), []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} // a quota of -1 is none
		}
		for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
			var all string
			for _, name := range files {
				text, _ := os.ReadFile(filepath.Join(top, dir, name))
				all += string(text) + " "
			}
			var quota, period float64
			if n, _ := fmt.Sscan(all, &quota, &period); n == 2 && quota > 0 && period > 0 {
				least = min(least, quota/period)
			}
			if dir == "/" {
				break
			}
		}
	}
	return least
}
