package comparison

import (
	"context"
	"errors"
	"fmt"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
	"exnet/directsockets/dissect"
)

// How many round trips are made to take a lane apart. Those of sides that sleep have a pause
// before each, for the CPUs to be idle.
const (
	polledRounds = 400_000
	sleptRounds  = 1000
	sleptPause   = time.Millisecond
)

// dissecting is about how long it takes.
func (b Breakdown) dissecting() time.Duration {
	if b.Quick {
		return 300 * time.Millisecond
	}
	return time.Second
}

// dissection is what to do on a path.
func (b Breakdown) dissection(path string) dissect.Config {
	c := dissect.Config{Size: message, Rounds: polledRounds, CPUs: b.CPUs}
	if path == slept {
		c.Rounds, c.Asleep, c.Pause = sleptRounds, true, sleptPause
	}
	if b.Quick {
		c.Rounds /= 4
	}
	return c
}

// dissect takes lanes apart, those on which the sides poll and sleep in turn.
func (b Breakdown) dissect(ctx context.Context, r *report.Report, progress *report.Progress) {
	times := map[string]map[string][]float64{}
	failed, skipped := map[string]bool{}, map[string]error{}
	for range b.Runs {
		for _, path := range b.lanes() {
			if failed[path] || ctx.Err() != nil {
				continue
			}
			progress.Doing("taking a message apart, path " + path)
			found, err := dissect.Run(ctx, b.dissection(path))
			if ctx.Err() != nil {
				continue
			}
			if errors.Is(err, dissect.ErrAwake) { // others wanted the CPUs
				skipped[path] = err
				continue
			}
			if err != nil {
				failed[path] = true
				r.Fail("breakdown of "+path, err)
				continue
			}
			if times[path] == nil {
				times[path] = map[string][]float64{}
			}
			note := func(name string, ns float64) { times[path][name] = append(times[path][name], ns) }
			for _, s := range found.Steps {
				note(s.Name, s.Time)
			}
			note("sum", found.Sum)
			note("whole", found.Whole)
			progress.Done(b.dissecting())
		}
	}
	for path, err := range skipped {
		if times[path] == nil { // in another run there was enough
			r.Skip("path "+path, err)
		}
	}
	for _, s := range append(dissect.Steps(), laneSums...) {
		for _, path := range b.lanes() {
			if runs := times[path][s.Name]; len(runs) > 0 {
				row := report.Row{Test: "lane-" + s.Name, Path: path, Size: message, Unit: report.Nanoseconds, Runs: runs,
					What: "by stamps in shared memory, both directions of a round trip of 64 bytes together: " + s.What}.Finish()
				if s.Name == "whole" {
					row.Note = missed(row.Value, measure.Median(times[path]["sum"]))
				}
				r.Rows = append(r.Rows, row)
			}
		}
	}
}

// missed is how far the steps are from the whole. It is no row: a comparison would take a
// change of it for something better or worse.
func missed(whole, sum float64) string {
	return fmt.Sprintf("the steps add up to %s, which is %+.1f %% of it away", report.Nanoseconds.Format(sum), 100*(sum-whole)/whole)
}
