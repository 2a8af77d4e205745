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

// extraCalls counts system calls per operation with and without the library,
// each as the difference between a run of 2N and one of N.
func extraCalls(what string, both bool) func(context.Context, *bench, *test, *report.Row) error {
	return func(ctx context.Context, b *bench, _ *test, row *report.Row) error {
		const n = 1000
		var perOp [2]float64
		for i := range perOp {
			var calls [2]float64
			for j := range calls {
				count, err := b.calls(ctx, i == 1, what, both, n*(j+1))
				if err != nil {
					return err
				}
				calls[j] = count
			}
			perOp[i] = (calls[1] - calls[0]) / n
		}
		row.Runs = []float64{perOp[1] - perOp[0]}
		row.Note = fmt.Sprintf("%.3f with the library and %.3f without, of the client", perOp[1], perOp[0])
		return nil
	}
}

// calls counts the system calls of a client that does n operations.
func (b *bench) calls(ctx context.Context, preloaded bool, what string, both bool, n int) (float64, error) {
	dir, err := os.MkdirTemp("", "dsbench-")
	if err != nil {
		return 0, fmt.Errorf("make a private directory: %w", err)
	}
	defer os.RemoveAll(dir)
	counts := filepath.Join(dir, "counts")
	a := &arena{bench: b, dir: dir, server: preloaded, client: preloaded, wrap: []string{"strace", "-c", "-f", "-o", counts}}
	defer a.close()
	if _, _, err := a.exchange(ctx, what, both, n); err != nil {
		return 0, err
	}
	text, err := os.ReadFile(counts)
	if err != nil {
		return 0, fmt.Errorf("read what strace counted: %w", err)
	}
	// "100.00    0.012345           2      4321        12 total"
	m := regexp.MustCompile(`(?m)^100\.00\s+[\d.]+\s+\d*\s+(\d+)\s.*total$`).FindSubmatch(text)
	if m == nil {
		return 0, fmt.Errorf("strace counted nothing: %s", last(bytes.TrimSpace(text)))
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// startUp measures what preloading adds to a program that does nothing. It is
// CPU time: the program waits for nobody, and other programs do not count.
func startUp(command string) func(context.Context, *bench, *test, *report.Row) error {
	return func(ctx context.Context, b *bench, _ *test, row *report.Row) error {
		const starts = 50
		loop := fmt.Sprintf("i=0; while [ $i -lt %d ]; do %s; i=$((i+1)); done >/dev/null", starts, command)
		dir, err := os.MkdirTemp("", "dsbench-")
		if err != nil {
			return fmt.Errorf("make a private directory: %w", err)
		}
		defer os.RemoveAll(dir)
		for range b.Runs {
			var took [2]time.Duration
			for i := range took {
				// What the shell and the namespace cost is the same for both.
				a := &arena{bench: b, dir: dir, client: i == 1}
				if _, err := a.run(ctx, "sh", "-c", loop); err != nil {
					return err
				}
				took[i] = a.cpu
			}
			row.Runs = append(row.Runs, float64(took[1]-took[0])/starts)
		}
		return nil
	}
}
