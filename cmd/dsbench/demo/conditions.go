package demo

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// From when on the machine's conditions are worth a sentence.
const (
	busyCPUs = 0.25   // taken by other programs, on average
	slowWake = 100e3  // ns until a thread on the other CPU runs
	wakes    = 100    // that are timed
	pause    = 500e3  // ns before each: the CPU falls asleep
	farCores = 110.0  // ns, as in package report
	second   = 1000.0 // ms
)

// look measures how far the CPUs are apart and how long waking takes.
func (s *show) look(ctx context.Context) error {
	c := s.report.Conditions
	c.Apart = measure.CoreToCore(s.cpus[0], s.cpus[1])
	duo, err := measure.Start(s.cpus[0], s.cpus[1])
	if err != nil {
		return err
	}
	defer duo.Close()
	defer context.AfterFunc(ctx, duo.Close)()
	entry, err := duo.Prepare(ctx, "bare/wake", measure.Params{Pause: pause})
	if err != nil {
		return err
	}
	result, err := entry.Run(ctx, wakes)
	if err != nil {
		return err
	}
	c.WakeUp = result.Lead.PerOp / 2 // there and back
	return nil
}

// A load is what other programs take of the CPUs from some moment on. Whatever we start and wait
// for is ours; the rest is what the kernel counts beyond.
type load struct {
	watch *measure.Watch
	ended time.Duration
}

func newLoad() (*load, error) {
	w, err := measure.NewWatch([]int{os.Getpid()})
	if err != nil {
		return nil, err
	}
	return &load{w, childrenCPU()}, nil
}

func (l *load) foreign() float64 {
	l.watch.Ended(childrenCPU() - l.ended)
	foreign, err := l.watch.Foreign()
	if err != nil {
		return 0 // it was there before
	}
	return foreign
}

// childrenCPU is what programs have used that we started and that have ended.
func childrenCPU() time.Duration {
	var ru unix.Rusage
	unix.Getrusage(unix.RUSAGE_CHILDREN, &ru) // cannot fail: who is a constant
	return time.Duration(ru.Utime.Nano() + ru.Stime.Nano())
}

// conditions are the lines on the machine: what it was like, and what to make of it.
func conditions(r *report.Report) (lines []string) {
	c := r.Conditions
	if c == nil {
		return nil
	}
	cpus := r.Machine.CPUs
	facts := []string{fmt.Sprintf("other programs used %.2f of %s meanwhile", c.Foreign, plural(cpus, "CPU"))}
	if c.Apart > 0 {
		facts = append(facts, fmt.Sprintf("a cache line takes %s from one CPU to the other", report.Nanoseconds.Format(c.Apart)))
	}
	if c.WakeUp > 0 {
		facts = append(facts, fmt.Sprintf("waking a sleeping thread takes %s", report.Nanoseconds.Format(c.WakeUp)))
	}
	lines = append(lines, "This machine: "+strings.Join(facts, "; ")+".")
	if c.Foreign > busyCPUs {
		lines = append(lines, "It is busy: figures are lower than they would be, and those that cannot be trusted are not shown. Run it again when nothing else runs.")
	}
	if c.Apart > farCores {
		lines = append(lines, "Its two CPUs are far apart (no shared cache): all that shares memory is slower here than between neighbours.")
	}
	if c.WakeUp > slowWake {
		lines = append(lines, "Its CPUs are slow to wake: kernel TCP pays for that with each message, EXT-DS seldom. Ratios are smaller on other machines.")
	}
	if cpus == 1 {
		lines = append(lines, "It has one CPU, which both sides share: with a second one both columns change.")
	}
	return lines
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
