package report

import (
	"fmt"
	"math"
	"slices"

	"exnet/cmd/dsbench/measure"
)

const (
	// MachineBusy begins the reason why a row has no result.
	MachineBusy = "machine busy"

	// scatter is how many times as large as the lower quartile of the runs the upper one may be.
	// Beyond that the runs did not measure the same thing.
	scatter = 2

	// contradiction is by how much the median ratio of the pairs may differ from the ratio of the
	// medians. Beyond that a reader of both would trust neither.
	contradiction = 1.25
)

// judge says of a row whose numbers are computed whether they are a result. What was said before by
// those who saw the machine stays.
func (r Row) judge() Row {
	low, high, far := r.Unit.scattered(r.Runs)
	switch {
	case r.NoResult != "":
	case far:
		r.NoResult = fmt.Sprintf("%s: the middle half of the runs lies between %s and %s", MachineBusy, r.Unit.Format(low), r.Unit.Format(high))
	}
	if r.Ratio == nil || r.NoRatio != "" {
		return r
	}
	low, high, far = r.Unit.scattered(r.ReferenceRuns)
	apart := math.Abs(math.Log(*r.Ratio / (r.Value / *r.Reference)))
	switch {
	case r.NoResult != "":
		r.NoRatio = r.NoResult
	case far:
		r.NoRatio = fmt.Sprintf("%s: the middle half of the reference's runs lies between %s and %s", MachineBusy, r.Unit.Format(low), r.Unit.Format(high))
	case *r.Ratio > 0 && r.Value > 0 && *r.Reference > 0 && apart > math.Log(contradiction):
		r.NoRatio = fmt.Sprintf("%s: run by run it is %s, and of the medians %s", MachineBusy, FormatRatio(*r.Ratio), FormatRatio(r.Value / *r.Reference))
	}
	return r
}

// scattered reports whether the runs lie too far apart for a median to say anything. It does not
// apply to what may be next to nothing, such as the CPU time of idle programs.
func (u Unit) scattered(runs []float64) (low, high float64, far bool) {
	low, high = measure.Quartiles(runs)
	switch u {
	case Nanoseconds, BytesPerSecond, BitsPerSecond, MessagesPerSec, ConnectionsPS:
		return low, high, len(runs) > 1 && low > 0 && high > scatter*low
	}
	return low, high, false
}

// noResult is what stands in the place of a value that is none.
const noResult = "no result: " + MachineBusy

// FormatValue prints the value, or that there is none.
func (r Row) FormatValue() string {
	if r.NoResult != "" {
		return noResult
	}
	return r.Unit.Format(r.Value)
}

// Gain is the ratio to the reference, if there is one that can be trusted.
func (r Row) Gain() (ratio float64, ok bool) {
	if r.Ratio == nil || r.NoRatio != "" {
		return 0, false
	}
	return *r.Ratio, true
}

// FormatGain prints that ratio, "" without one.
func (r Row) FormatGain() string {
	if ratio, ok := r.Gain(); ok {
		return FormatRatio(ratio)
	}
	return ""
}

// busy writes why rows have no result, or no ratio.
func (r *Report) busy() (lines []string) {
	for _, row := range r.Rows {
		switch {
		case row.NoResult != "":
			lines = append(lines, fmt.Sprintf("%s: no result: %s", row.point(), row.NoResult))
		case row.NoRatio != "":
			lines = append(lines, fmt.Sprintf("%s: no ratio: %s", row.point(), row.NoRatio))
		}
	}
	return slices.Compact(lines)
}
