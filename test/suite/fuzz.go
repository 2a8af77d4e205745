package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"

	"exnet/test/tier"
)

// A fuzz target gets its share of the budget of all, within bounds: below the
// least, starting it takes longer than running it.
const (
	ciFuzz, ciFuzzMost     = 90 * time.Second, 3 * time.Second
	longFuzz, longFuzzMost = 20 * time.Minute, 2 * time.Minute
	leastFuzz              = time.Second
)

// share returns how long each of n targets runs when the machine runs as many
// at once as it has CPUs.
func share(n, cpus int, long bool) time.Duration {
	budget, most := ciFuzz, ciFuzzMost
	if long {
		budget, most = longFuzz, longFuzzMost
	}
	return max(leastFuzz, min(most, budget*time.Duration(cpus)/time.Duration(n)).Truncate(100*time.Millisecond))
}

// fuzz runs every fuzz target, each on one CPU. By default go test spends up to a
// minute on making each new input smaller, which would be all of the time.
func (s *suite) fuzz(ctx context.Context) {
	found, err := find(".", "Fuzz", "")
	if err != nil {
		s.fail("finding fuzz targets", err.Error())
	}
	n := 0
	for _, names := range found {
		n += len(names)
	}
	if n == 0 {
		return
	}
	cpus := runtime.NumCPU()
	d := share(n, cpus, s.tier == tier.All)
	s.heading(fmt.Sprintf("fuzzing %d targets, %v each", n, d))

	var reporting sync.Mutex
	var running sync.WaitGroup
	slots := make(chan struct{}, cpus)
	for _, dir := range directories(found) {
		for _, name := range found[dir] {
			if ctx.Err() != nil {
				break // all that follow would fail for the same reason
			}
			slots <- struct{}{}
			running.Go(func() {
				defer func() { <-slots }()
				start := time.Now()
				out, err := s.command(ctx, "go", "test", "-run=^$", "-fuzz=^"+name+"$", "-fuzztime="+d.String(), "-fuzzminimizetime=10x", "-parallel=1", dir).CombinedOutput()
				reporting.Lock()
				defer reporting.Unlock()
				s.took("fuzzing", time.Since(start))
				switch full := "fuzz " + dir + " " + name; {
				case err != nil && !endedLate(string(out)):
					s.fail(full, string(out)+err.Error())
				case strings.Contains(string(out), "no fuzz tests to fuzz"), strings.Contains(string(out), "[no test files]"):
					s.skip(full, "not built for this system")
				default:
					s.printf("ok  \t%s\t%s\n", dir, name)
					s.pass()
				}
			})
		}
	}
	running.Wait()
}

// lateEnd matches the only complaint of a target that was stopped while an
// input was at work, which go test takes for a failure: golang/go#75804.
var lateEnd = regexp.MustCompile(`(?m)^--- FAIL: Fuzz\w+ \(\S+\)\n    context deadline exceeded\nFAIL$`)

// endedLate says whether a failed run of a target found nothing. What is found
// is also written below testdata.
func endedLate(output string) bool {
	return lateEnd.MatchString(output) && !strings.Contains(output, "Failing input written to") && !strings.Contains(output, "panic:")
}
