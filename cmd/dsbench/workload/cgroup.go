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
type cgroup struct {
	dir     string
	enabled []string // cgroups of version 2 that we gave the controller to their children, from the root down
}

// oneCPU is a quota: each 100 ms as much CPU time, however many CPUs there are.
const (
	period = 100_000 // µs
	oneCPU = period
)

// newCgroup makes one with a quota beside the one we are in: version 2 allows none below where processes are. On the
// way there the controller is enabled where it is not, as systemd does only for units that ask for it.
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
		c, top, files := &cgroup{}, "/sys/fs/cgroup", [][2]string{{"cpu.max", fmt.Sprint(quota, " ", period)}}
		beside := filepath.Dir(filepath.Clean("/" + fields[2]))
		err = nil
		if fields[1] == "" {
			err = c.enable(top, beside)
		} else {
			if !slices.Contains(strings.Split(fields[1], ","), "cpu") {
				continue
			}
			top, files = filepath.Join(top, fields[1]), [][2]string{{"cpu.cfs_period_us", strconv.Itoa(period)}, {"cpu.cfs_quota_us", strconv.Itoa(quota)}}
		}
		if err == nil {
			err = c.make(filepath.Join(top, beside), files)
		}
		if err == nil {
			return c, nil
		}
		obstacles = append(obstacles, err, c.close())
	}
	return nil, fmt.Errorf("no cgroup with a quota of CPU time: it needs root and the controller cpu: %w", errors.Join(obstacles...))
}

// enable gives the children of a cgroup of version 2 the controller of CPU time, and those of all above it.
func (c *cgroup) enable(top, group string) error {
	if text, err := os.ReadFile(filepath.Join(top, "cgroup.controllers")); err != nil {
		return fmt.Errorf("cgroups: %w", err)
	} else if !slices.Contains(strings.Fields(string(text)), "cpu") {
		return fmt.Errorf("cgroups: no controller cpu in %s: it belongs to version 1 or to nobody", top)
	}
	dirs := []string{top}
	for _, name := range strings.FieldsFunc(group, func(r rune) bool { return r == '/' }) {
		dirs = append(dirs, filepath.Join(dirs[len(dirs)-1], name))
	}
	for _, dir := range dirs {
		file := filepath.Join(dir, "cgroup.subtree_control")
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("cgroups: %w", err)
		}
		if slices.Contains(strings.Fields(string(text)), "cpu") {
			continue
		}
		if err := write(file, "+cpu"); err != nil {
			return err
		}
		c.enabled = append(c.enabled, file)
	}
	return nil
}

func (c *cgroup) make(parent string, quota [][2]string) (err error) {
	if c.dir, err = os.MkdirTemp(parent, "dsbench-"); err != nil {
		return err
	}
	for _, q := range quota {
		if err := write(filepath.Join(c.dir, q[0]), q[1]); err != nil {
			return err
		}
	}
	return nil
}

// write is not WriteFile: a file that is not there is a controller that is not.
func write(file, text string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}

// close removes it, and takes back what was enabled for it; nobody is in it any more.
func (c *cgroup) close() (err error) {
	if c.dir != "" {
		err = os.Remove(c.dir)
	}
	for _, file := range slices.Backward(c.enabled) {
		err = errors.Join(err, write(file, "-cpu"))
	}
	return err
}

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
