package workload

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// A cgroup is a private one of the kernel's with a quota of CPU time, of version 2 or 1, whichever has
// the controller for it. It is ours until close.
type cgroup struct{ dir string }

// oneCPU is a quota: each 100 ms as much CPU time, however many CPUs there are.
const (
	period = 100_000 // µs
	oneCPU = period
)

// newCgroup makes one with a quota beside the one we are in: version 2 allows none below where processes are.
func newCgroup(quota int) (*cgroup, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("cgroups: %w", err)
	}
	var obstacles []error
	for line := range strings.Lines(string(text)) { // "4:cpu,cpuacct:/a/b", of version 2 "0::/a/b"
		fields := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(fields) < 3 {
			continue
		}
		top, files := "/sys/fs/cgroup", [][2]string{{"cpu.max", fmt.Sprint(quota, " ", period)}}
		if fields[1] != "" {
			if !slices.Contains(strings.Split(fields[1], ","), "cpu") {
				continue
			}
			top, files = filepath.Join(top, fields[1]), [][2]string{{"cpu.cfs_period_us", strconv.Itoa(period)}, {"cpu.cfs_quota_us", strconv.Itoa(quota)}}
		}
		c, err := makeCgroup(filepath.Join(top, filepath.Dir(fields[2])), files)
		if err == nil {
			return c, nil
		}
		obstacles = append(obstacles, err)
	}
	return nil, fmt.Errorf("no cgroup with a quota of CPU time: it needs root and the controller cpu: %w", errors.Join(obstacles...))
}

func makeCgroup(parent string, quota [][2]string) (*cgroup, error) {
	dir, err := os.MkdirTemp(parent, "dsbench-")
	if err != nil {
		return nil, err
	}
	c := &cgroup{dir}
	for _, q := range quota {
		// Not WriteFile: a file that is not there is a controller that is not.
		f, err := os.OpenFile(filepath.Join(dir, q[0]), os.O_WRONLY, 0)
		if err == nil {
			_, err = f.WriteString(q[1])
			err = errors.Join(err, f.Close())
		}
		if err != nil {
			return nil, errors.Join(err, c.close())
		}
	}
	return c, nil
}

// close removes it; nobody is in it any more.
func (c *cgroup) close() error { return os.Remove(c.dir) }

// throttled is in how many of its periods processes wanted more than the quota.
func (c *cgroup) throttled() (times, periods float64, err error) {
	text, err := os.ReadFile(filepath.Join(c.dir, "cpu.stat"))
	if err != nil {
		return 0, 0, fmt.Errorf("cgroups: %w", err)
	}
	return parseThrottled(text)
}

func parseThrottled(text []byte) (times, periods float64, err error) {
	found := map[string]float64{}
	for s := bufio.NewScanner(bytes.NewReader(text)); s.Scan(); {
		var name string
		var value float64
		if n, _ := fmt.Sscan(s.Text(), &name, &value); n == 2 {
			found[name] = value
		}
	}
	times, ok := found["nr_throttled"]
	periods, also := found["nr_periods"]
	if !ok || !also {
		return 0, 0, fmt.Errorf("cgroups: no nr_periods and nr_throttled in %q", text)
	}
	return times, periods, nil
}
