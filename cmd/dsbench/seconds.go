package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// interval is how often a client says how fast it is.
const interval = time.Second

// tell prints a line for each interval of a run, as iperf3 does, until the function it returns is
// called. What a run does after its last whole interval is in the report only.
func (s *session) tell(ctx context.Context, w io.Writer, meter *measure.Meter, every time.Duration) (stop func()) {
	if w == nil || meter == nil {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		begin := time.Now()
		last, before := begin, meter.Done()
		for {
			select {
			case <-ctx.Done():
				return
			case now := <-ticker.C:
				done := meter.Done()
				fmt.Fprintln(w, s.line(last.Sub(begin), now.Sub(begin), done-before))
				last, before = now, done
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// line says what was done between two moments of a run.
func (s *session) line(from, to time.Duration, done int64) string {
	rate := float64(done) / max(to-from, 1).Seconds()
	what := ""
	switch {
	case s.RR:
		what = report.MessagesPerSec.Format(rate) + " and their echoes"
		if rate > 0 {
			what += ", half a round trip " + report.Nanoseconds.Format(1e9/rate/2)
		}
	case s.CRR:
		what = report.ConnectionsPS.Format(rate)
	case s.UDP:
		what = report.BitsPerSecond.Format(8*rate) + " sent"
	default:
		what = report.BitsPerSecond.Format(8 * rate)
	}
	return fmt.Sprintf("%6.2f-%.2f s   %s", from.Seconds(), to.Seconds(), what)
}
