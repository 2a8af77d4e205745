package workload

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"time"

	"exnet/cmd/dsbench/report"
)

// A counting says how the system calls of a program's operations are counted.
type counting struct {
	do        func(ctx context.Context, a *arena, n int) error // n operations
	n         int
	only      []string // flags by which strace counts some calls only
	succeeded bool     // only calls that succeed
}

// ofProgram counts all calls.
func ofProgram(do func(context.Context, *arena, int) error) counting {
	return counting{do: do, n: 1000}
}

// ofGo counts the calls that a Go program makes for what it does. Those by which its
// runtime sleeps, wakes and manages memory depend on the moment, and so does whether it
// tries to read before there is something, which gives EAGAIN. What it does to start
// differs by a few calls each time, so there are more operations.
func ofGo(do func(context.Context, *arena, int) error) counting {
	const connections = "%file,%network,read,write,readv,writev,fstat,ioctl,fcntl,close,dup,dup3,epoll_create1,epoll_ctl,eventfd2,memfd_create,ftruncate,fallocate,poll,ppoll,getcpu"
	return counting{do: do, n: 10_000, only: []string{"-e", "trace=" + connections}, succeeded: true}
}

// extraCalls counts system calls per operation with and without the library,
// each as the difference between a run of 2N and one of N.
func extraCalls(c counting) func(context.Context, *bench, *test, *report.Row) error {
	return func(ctx context.Context, b *bench, _ *test, row *report.Row) error {
		var perOp [2]float64
		for i := range perOp {
			var calls [2]float64
			for j := range calls {
				count, err := c.calls(ctx, b, i == 1, c.n*(j+1))
				if err != nil {
					return err
				}
				calls[j] = count
			}
			perOp[i] = (calls[1] - calls[0]) / float64(c.n)
		}
		row.Runs = []float64{perOp[1] - perOp[0]}
		row.Note = fmt.Sprintf("%.3f with the library and %.3f without, of the client", perOp[1], perOp[0])
		return nil
	}
}

// calls counts the system calls of a client that does n operations.
func (c counting) calls(ctx context.Context, b *bench, library bool, n int) (float64, error) {
	a, err := b.newArena(library)
	if err != nil {
		return 0, err
	}
	defer a.close()
	counts := filepath.Join(a.dir, "counts")
	a.wrap = append([]string{"strace", "-c", "-f", "-o", counts}, c.only...)
	if err := c.do(ctx, a, n); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(counts)
	if err != nil {
		return 0, fmt.Errorf("read what strace counted: %w", err)
	}
	return counted(text, c.succeeded)
}

// counted are the calls in a table of strace, or those of them that succeeded.
func counted(table []byte, succeeded bool) (float64, error) {
	// "100.00    0.012345           2      4321        12 total"
	m := regexp.MustCompile(`(?m)^100\.00\s+[\d.]+\s+\d*\s+(\d+)\s+(\d*)\s*total$`).FindSubmatch(table)
	if m == nil {
		return 0, fmt.Errorf("strace counted nothing: %s", last(bytes.TrimSpace(table)))
	}
	n, err := strconv.ParseFloat(string(m[1]), 64)
	if errors := string(m[2]); err == nil && succeeded && errors != "" {
		var failed float64
		failed, err = strconv.ParseFloat(errors, 64)
		n -= failed
	}
	return n, err
}

// startUp measures what preloading adds to a program that does nothing. It is
// CPU time: the program waits for nobody, and other programs do not count.
func startUp(command string) func(context.Context, *bench, *test, *report.Row) error {
	return func(ctx context.Context, b *bench, _ *test, row *report.Row) error {
		const starts = 50
		loop := fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done >/dev/null", starts, command)
		a, err := b.newArena(false)
		if err != nil {
			return err
		}
		defer a.close()
		for range b.Runs {
			var took [2]time.Duration
			for i := range took {
				// What the shell and the namespace cost is the same for both.
				before := a.cpu
				a.client = i == 1
				if _, err := a.run(ctx, "sh", "-c", loop); err != nil {
					return err
				}
				took[i] = a.cpu - before
			}
			row.Runs = append(row.Runs, float64(took[1]-took[0])/starts)
		}
		return nil
	}
}
