package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"

	"exnet/cmd/dsbench/measure"
)

// always are the fields that every row has.
var always = []string{"test", "path", "size", "value", "unit", "reference", "ratio", "runs"}

// Validate checks that data is one JSON object of the schema in the package
// comment, and that its numbers agree with each other.
func Validate(data []byte) error {
	var raw struct {
		Schema  int                          `json:"schema"`
		Rows    []map[string]json.RawMessage `json:"rows"`
		Machine map[string]json.RawMessage   `json:"machine"`
	}
	if err := json.Unmarshal(data, &raw); err != nil {
		return fmt.Errorf("report: not the JSON object of a report: %w", err)
	}
	if raw.Schema > Schema {
		return fmt.Errorf("report: of schema %d, and this program knows up to %d: use the dsbench that wrote it", raw.Schema, Schema)
	}
	if raw.Rows == nil || raw.Machine == nil {
		return errors.New(`report: "rows" or "machine" is missing`)
	}
	for i, row := range raw.Rows {
		for _, field := range always {
			if _, ok := row[field]; !ok {
				return fmt.Errorf("report: row %d: %q is missing", i, field)
			}
		}
	}
	var r Report
	if err := json.Unmarshal(data, &r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	if len(r.Failures) > 0 && !r.Partial {
		return errors.New("report: failures in a report that is not partial")
	}
	for i, row := range r.Rows {
		if err := row.validate(); err != nil {
			return fmt.Errorf("report: row %d (%s): %w", i, row.name(), err)
		}
	}
	return nil
}

func (r Row) validate() error {
	switch {
	case r.Test == "" || r.Path == "" || r.Size < 0:
		return errors.New("test or path is empty, or size negative")
	case r.Setting != nil && (r.Setting.Of == "" || r.Setting.Value < 0 || r.Setting.Unit != "" && !r.Setting.Unit.valid()):
		return errors.New("a setting without a name, with a negative value or of an unknown unit")
	case !r.Unit.valid():
		return fmt.Errorf("unknown unit %q", r.Unit)
	case len(r.Runs) == 0:
		return errors.New("no runs")
	case (r.Reference == nil) != (r.Ratio == nil) || (r.Reference == nil) != (r.ReferenceRuns == nil):
		return errors.New("reference, ratio and reference_runs go together")
	case r.ReferenceRuns != nil && len(r.ReferenceRuns) != len(r.Runs):
		return errors.New("runs and reference_runs are not pairs")
	}
	if t := r.Target; t != nil {
		if t.Of != Value && t.Of != Ratio && t.Of != RatioSurely || (t.AtLeast == nil) == (t.AtMost == nil) {
			return errors.New("a target bounds value, ratio or ratio_surely, at_least or at_most")
		}
	}
	want := r.Finish()
	if !near(r.Value, want.Value) {
		return fmt.Errorf("value %v is not the median %v of its runs", r.Value, measure.Median(r.Runs))
	}
	if r.Ratio != nil && (!near(*r.Reference, *want.Reference) || !near(*r.Ratio, *want.Ratio)) {
		return fmt.Errorf("reference %v or ratio %v does not follow from the runs", *r.Reference, *r.Ratio)
	}
	if p := r.Percentiles; p != nil && !slices.IsSorted([]float64{p.P50, p.P90, p.P99, p.P999, p.Max}) {
		return errors.New("percentiles that do not go up")
	}
	if r.Quartiles != nil && !slices.EqualFunc(r.Quartiles, want.Quartiles, near) { // older reports have none
		return fmt.Errorf("quartiles %v do not follow from the runs: want %v", r.Quartiles, want.Quartiles)
	}
	if !slices.EqualFunc(r.Interval, want.Interval, near) {
		return fmt.Errorf("interval %v does not follow from the runs: want %v", r.Interval, want.Interval)
	}
	if r.NoResult+r.NoRatio == "" && want.NoResult+want.NoRatio != "" {
		return nil // an older report, which decided on its target nevertheless
	}
	if (r.Met == nil) != (want.Met == nil) || r.Met != nil && *r.Met != *want.Met {
		return errors.New("met does not follow from the target")
	}
	return nil
}

// near allows for a decimal representation with fewer digits.
func near(a, b float64) bool { return math.Abs(a-b) <= 1e-9*max(math.Abs(a), math.Abs(b)) }
