package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A condition makes a machine on which tests that count on a quick one fail. begin prepares it:
// it gives flags for go test and what undoes the rest, or says why it cannot be had here.
type condition struct {
	name, text string
	begin      func(ctx context.Context, s *suite) (flags []string, end func(), err error)
}

var conditions = []condition{
	{"one-cpu", "everything on one CPU", func(context.Context, *suite) ([]string, func(), error) {
		return []string{"-exec=taskset -c " + firstCPU()}, func() {}, nil
	}},
	{"busy", "two busy loops beside it", busyBeside},
	{"half-cpu", "half a CPU", halfCPU},
	{"slow-wakes", "wake-ups take 0.4 ms and yields up to 2 ms", slowWakes},
}

// adversePackages are those in which threads or processes wait for each other.
var adversePackages = []string{
	"./directsockets/...", "./fabric/shm", "./napi", "./exn", "./test/ds/script", "./test/ds/stream", "./test/ds/gopeer",
	"./test/ds/hostile", "./test/ds/lane", "./test/exn/...",
}

// The time-outs are for what hangs. Under these conditions all takes several times as long.
const (
	adversePackage = time.Hour
	adverseLimit   = 12 * time.Hour
)

// chosenConditions are those named, with commas between, or all.
func chosenConditions(names string) (chosen []condition, err error) {
	if names == "all" {
		return conditions, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		i := slices.IndexFunc(conditions, func(c condition) bool { return c.name == name })
		if i < 0 {
			return nil, fmt.Errorf("-adverse: no condition is called %q; there are one-cpu, busy, half-cpu, slow-wakes and all", name)
		}
		chosen = append(chosen, conditions[i])
	}
	return chosen, nil
}

// adverse runs the tests of packages under each of some conditions.
func (s *suite) adverse(chosen []condition, packages []string) func(context.Context) {
	return func(ctx context.Context) {
		if len(packages) == 0 {
			packages = adversePackages
		}
		var lines []string
		for _, c := range chosen {
			if ctx.Err() == nil {
				lines = append(lines, fmt.Sprintf("%-12s%s", c.name, s.under(ctx, c, packages)))
			}
		}
		s.heading("under adverse conditions")
		s.printf("%s\n", strings.Join(lines, "\n"))
	}
}

// under runs them under one, and says how it went.
func (s *suite) under(ctx context.Context, c condition, packages []string) string {
	flags, end, err := c.begin(ctx, s)
	if err != nil {
		s.skip("tests with "+c.text, err.Error())
		return "not run: " + err.Error()
	}
	defer end()
	begun, passed, failed, skipped := time.Now(), s.passed, len(s.failed), s.skips()
	s.again = 0
	// One package at a time: the condition is what it meets, not its neighbours.
	flags = append(flags, "-count=1", "-short", "-p=1", "-timeout="+adversePackage.String())
	s.goTest(ctx, c.name+": "+c.text, flags, packages...)
	for i := failed; i < len(s.failed); i++ {
		s.failed[i] += " (" + c.name + ")"
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped in %v", s.passed-passed, len(s.failed)-failed, s.skips()-skipped,
		time.Since(begun).Round(time.Second))
}

func (r *report) skips() (n int) {
	for _, names := range r.skipped {
		n += len(names)
	}
	return n
}

// firstCPU is the first that this process may use.
func firstCPU() string {
	status, _ := os.ReadFile("/proc/self/status") // without it CPU 0 is tried
	for line := range strings.Lines(string(status)) {
		if list, found := strings.CutPrefix(line, "Cpus_allowed_list:"); found {
			first, _, _ := strings.Cut(strings.TrimSpace(list), ",")
			first, _, _ = strings.Cut(first, "-")
			return first
		}
	}
	return "0"
}

func busyBeside(ctx context.Context, s *suite) ([]string, func(), error) {
	ctx, stop := context.WithCancel(ctx)
	var waits []func() error
	end := func() {
		stop()
		for _, wait := range waits {
			_ = wait() // it was killed
		}
	}
	for range 2 {
		loop := s.command(ctx, "sh", "-c", "while :; do :; done")
		if err := loop.Start(); err != nil {
			end()
			return nil, nil, err
		}
		waits = append(waits, loop.Wait)
	}
	return nil, end, nil
}

// halfCPU gives tests a cgroup with half a CPU, of version 2 or 1.
func halfCPU(context.Context, *suite) ([]string, func(), error) {
	var errs error
	for _, v := range []struct{ top, file, limit string }{
		{"/sys/fs/cgroup", "cpu.max", "50000 100000"},
		{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"}, // of 100,000, the default
	} {
		dir := filepath.Join(v.top, fmt.Sprintf("exnet-adverse-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			errs = cmp.Or(errs, err)
			continue
		}
		file, err := os.OpenFile(filepath.Join(dir, v.file), os.O_WRONLY, 0)
		if err == nil {
			_, err = file.WriteString(v.limit)
			err = errors.Join(err, file.Close())
		}
		if err != nil {
			errs = cmp.Or(errs, err)
			os.Remove(dir)
			continue
		}
		// The first test of the next package is not to wait for the last one's processes.
		return []string{`-exec=sh -c 'echo $$ >` + dir + `/cgroup.procs && exec "$0" "$@"'`}, func() {
			for range 100 {
				if os.Remove(dir) == nil {
					return
				}
				time.Sleep(100 * time.Millisecond) // processes of the last test are ending
			}
		}, nil
	}
	return nil, nil, fmt.Errorf("needs a cgroup that can be given half a CPU (run it as root): %w", errs)
}

// slowWakes builds programs and library with slow wake-ups.
func slowWakes(ctx context.Context, s *suite) ([]string, func(), error) {
	dir, err := filepath.Abs("bin/slowwake")
	if err != nil {
		return nil, nil, err
	}
	s.heading("programs with slow wake-ups")
	build := s.command(ctx, "go", "build", "-tags=slowwake", "-o", dir+"/", "./cmd/exn-tun", "./cmd/dsbench/gopump")
	if text, err := build.CombinedOutput(); err != nil {
		s.fail("building programs with slow wake-ups", string(text)+err.Error())
		return nil, nil, errors.New("they do not build")
	}
	end := func() {}
	for name, value := range map[string]string{"EXN_SLOW_WAKES": "1", "EXN_BIN": dir} {
		was, found := os.LookupEnv(name)
		if err := os.Setenv(name, value); err != nil {
			return nil, nil, err
		}
		before := end
		end = func() {
			before()
			if os.Unsetenv(name); found {
				os.Setenv(name, was)
			}
		}
	}
	return []string{"-tags=slowwake"}, end, nil
}
