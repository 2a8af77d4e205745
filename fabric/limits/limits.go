// Package limits finds how much memory and CPU time the kernel lets this process have.
package limits

import (
	"fmt"
	"iter"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// Memory returns the smallest of the machine's memory, the limits of this process's cgroups (of
// both versions) and RLIMIT_AS, in bytes.
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

// cgroupLimit returns the lowest memory limit from our cgroup up to the root, for both versions of
// the interface.
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

// CPUs returns how many CPUs this process may use: by affinity, and by the quotas of its cgroups
// (of both versions).
func CPUs() float64 {
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it there is no quota
	return min(float64(runtime.NumCPU()), cgroupQuota("/sys/fs/cgroup", string(groups)))
}

// cgroupQuota returns the lowest quota of CPU time from our cgroup up to the root.
func cgroupQuota(root, groups string) float64 {
	least := math.Inf(1)
	for dir, first := range cpuGroups(root, groups) {
		files := []string{"cpu.max"} // "max" has no numbers
		if first {
			files = []string{"cpu.cfs_quota_us", "cpu.cfs_period_us"} // a quota of -1 is none
		}
		var all string
		for _, name := range files {
			text, _ := os.ReadFile(filepath.Join(dir, name))
			all += string(text) + " "
		}
		var quota, period float64
		if n, _ := fmt.Sscan(all, &quota, &period); n == 2 && quota > 0 && period > 0 {
			least = min(least, quota/period)
		}
	}
	return least
}

// Throttled counts the periods in which one of our cgroups, or one above it, had used up its quota
// of CPU time. Each cgroup counts only what its own quota did.
func Throttled() uint64 {
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it there is no quota
	return cgroupThrottled("/sys/fs/cgroup", string(groups))
}

func cgroupThrottled(root, groups string) (times uint64) {
	for dir := range cpuGroups(root, groups) {
		text, _ := os.ReadFile(filepath.Join(dir, "cpu.stat"))
		for line := range strings.Lines(string(text)) {
			if count, found := strings.CutPrefix(strings.TrimSpace(line), "nr_throttled "); found {
				n, _ := strconv.ParseUint(count, 10, 64)
				times += n
			}
		}
	}
	return times
}

// cpuGroups yields the directories of our cgroups that may have the controller of CPU time, up to
// the root, and whether each is of version 1.
func cpuGroups(root, groups string) iter.Seq2[string, bool] {
	return func(yield func(string, bool) bool) {
		for line := range strings.Lines(groups) {
			// "0::/a/b", or of version 1 "4:cpu,cpuacct:/a/b"
			fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(fields) < 3 || fields[1] != "" && !slices.Contains(strings.Split(fields[1], ","), "cpu") {
				continue
			}
			top, first := root, fields[1] != ""
			if first {
				top = filepath.Join(root, "cpu")
			}
			for dir := filepath.Clean("/" + fields[2]); ; dir = filepath.Dir(dir) {
				if !yield(filepath.Join(top, dir), first) {
					return
				}
				if dir == "/" {
					break
				}
			}
		}
	}
}
