package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"

	"exnet/cmd/dsbench/measure"
)

// A Report is what a command found out.
type Report struct {
	Schema   int       `json:"schema"`
	Rows     []Row     `json:"rows"`
	Machine  Machine   `json:"machine"`
	Partial  bool      `json:"partial,omitempty"`
	Failures []Failure `json:"failures,omitempty"`
	Skipped  []Skip    `json:"skipped,omitempty"`

	Verdicts   []string          `json:"verdicts,omitempty"`
	Conditions *Conditions       `json:"conditions,omitempty"`
	Paths      map[string]string `json:"paths,omitempty"`
}

// Conditions are what the machine was like meanwhile. What is not known is 0.
type Conditions struct {
	Foreign float64 `json:"foreign_cpus"`              // CPUs that other programs took, on average
	Apart   float64 `json:"core_to_core_ns,omitempty"` // a cache line from one CPU to the other
	WakeUp  float64 `json:"wake_up_ns,omitempty"`      // until a thread that sleeps on the other CPU runs
}

// Describe says what a path is.
func (r *Report) Describe(path, what string) {
	if r.Paths == nil {
		r.Paths = map[string]string{}
	}
	r.Paths[path] = what
}

// Schema is the number of the schema of the package comment. It changes when
// what reads the old one would misread the new.
const Schema = 1

// A Failure is a test that gave no row.
type Failure struct {
	Test  string `json:"test"`
	Error string `json:"error"`
}

// A Skip is what this machine does not allow to measure.
type Skip struct {
	What string `json:"what"`
	Why  string `json:"why"`
}

// Skip records that something is left out.
func (r *Report) Skip(what string, why error) {
	r.Skipped = append(r.Skipped, Skip{what, why.Error()})
}

// Percentiles are of the single operations of a row, in its unit.
type Percentiles struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99.9"`
	Max  float64 `json:"max"`
}

// PercentilesOf are those of a histogram of times in ns, each multiplied by scale.
// There are none of nothing.
func PercentilesOf(h *measure.Histogram, scale float64) *Percentiles {
	if h.Count() == 0 {
		return nil
	}
	at := func(q float64) float64 { return h.Quantile(q) * scale }
	return &Percentiles{at(0.5), at(0.9), at(0.99), at(0.999), at(1)}
}

// A Row is one point of a measurement; the package comment says more.
type Row struct {
	Test      string    `json:"test"`
	Path      string    `json:"path"`
	Size      int       `json:"size"`
	Value     float64   `json:"value"`
	Unit      Unit      `json:"unit"`
	Reference *float64  `json:"reference"`
	Ratio     *float64  `json:"ratio"`
	Runs      []float64 `json:"runs"`

	Setting       *Setting       `json:"setting,omitempty"`
	ReferenceRuns []float64      `json:"reference_runs,omitempty"`
	Quartiles     []float64      `json:"quartiles,omitempty"`
	Percentiles   *Percentiles   `json:"percentiles,omitempty"`
	What          string         `json:"what,omitempty"`
	Against       string         `json:"against,omitempty"`
	Note          string         `json:"note,omitempty"`
	Disturbed     int            `json:"disturbed,omitempty"`
	CoreToCore    float64        `json:"core_to_core,omitempty"`
	CoresToCores  []float64      `json:"core_to_core_runs,omitempty"`
	Interval      []float64      `json:"interval,omitempty"`
	Lanes         *measure.Lanes `json:"lanes,omitempty"`
	Target        *Target        `json:"target,omitempty"`
	Met           *bool          `json:"met,omitempty"`
	NoResult      string         `json:"no_result,omitempty"`
	NoRatio       string         `json:"no_ratio,omitempty"`
}

// A Setting is what rows of a test differ in instead of their size: "MTU", 1500. Of
// whatever the setting does not touch there is one row without it.
type Setting struct {
	Of    string  `json:"of"`
	Unit  Unit    `json:"unit,omitempty"` // of the value; "": a plain number
	Value float64 `json:"value"`
}

// String prints the value.
func (s Setting) String() string {
	switch s.Unit {
	case "":
		return strconv.FormatFloat(s.Value, 'f', -1, 64)
	case Bytes:
		return FormatSize(int(s.Value))
	}
	return s.Unit.Format(s.Value)
}

// At is where a row stands among those of its test: its setting, else its size.
func (r Row) At() string {
	if r.Setting != nil {
		return r.Setting.String()
	}
	return FormatSize(r.Size)
}

// On is where a row stands on the axis of its figure, and of what that is. ok is false for
// what a setting does not touch.
func (r Row) On(setting string) (x float64, ok bool) {
	if r.Setting != nil {
		return r.Setting.Value, true
	}
	return float64(max(1, r.Size)), setting == ""
}

// A Target is a bound of a row's value or ratio. One of the bounds is set.
type Target struct {
	Of      Quantity `json:"of"`
	AtLeast *float64 `json:"at_least,omitempty"`
	AtMost  *float64 `json:"at_most,omitempty"`
}

// A Quantity is what of a row a target bounds.
type Quantity string

// The quantities.
const (
	Value Quantity = "value"
	Ratio Quantity = "ratio"

	// RatioSurely is the end of the interval on the wrong side of the bound:
	// such a target is met when chance hardly explains it.
	RatioSurely Quantity = "ratio_surely"
)

// AtLeast is the target that q is bound or more.
func AtLeast(q Quantity, bound float64) *Target { return &Target{Of: q, AtLeast: &bound} }

// AtMost is the target that q is bound or less.
func AtMost(q Quantity, bound float64) *Target { return &Target{Of: q, AtMost: &bound} }

// Finish computes what follows from r's runs and target.
func (r Row) Finish() Row {
	r.Value = measure.Median(r.Runs)
	if len(r.Runs) > 1 {
		low, high := measure.Quartiles(r.Runs)
		r.Quartiles = []float64{low, high}
	}
	if r.ReferenceRuns != nil {
		reference := measure.Median(r.ReferenceRuns)
		ratio := measure.Median(measure.Ratios(r.ReferenceRuns, r.Runs))
		r.Reference, r.Ratio = &reference, &ratio
		if low, high, ok := measure.MedianInterval(measure.Ratios(r.ReferenceRuns, r.Runs)); ok {
			r.Interval = []float64{low, high}
		}
	}
	r = r.judge()
	r.Met = r.met()
	return r
}

// met decides on the target; nil if there is none or nothing to decide on.
func (r Row) met() *bool {
	t := r.Target
	if t == nil || r.NoResult != "" || t.Of != Value && r.NoRatio != "" {
		return nil
	}
	q := &r.Value
	switch {
	case t.Of == Ratio:
		q = r.Ratio
	case t.Of == RatioSurely && len(r.Interval) != 2:
		return nil
	case t.Of == RatioSurely && t.AtMost != nil:
		q = &r.Interval[1]
	case t.Of == RatioSurely:
		q = &r.Interval[0]
	}
	if q == nil {
		return nil
	}
	met := (t.AtLeast == nil || *q >= *t.AtLeast) && (t.AtMost == nil || *q <= *t.AtMost)
	return &met
}

// Missed lists the rows whose target was not met.
func (r *Report) Missed() []Row {
	var missed []Row
	for _, row := range r.Rows {
		if row.Met != nil && !*row.Met {
			missed = append(missed, row)
		}
	}
	return missed
}

// Fail records that a test failed.
func (r *Report) Fail(test string, err error) {
	r.Partial = true
	r.Failures = append(r.Failures, Failure{test, err.Error()})
}

// Read reads and checks what WriteJSON wrote.
func Read(rd io.Reader) (*Report, error) {
	data, err := io.ReadAll(rd)
	if err != nil {
		return nil, fmt.Errorf("report: %w", err)
	}
	if err := Validate(data); err != nil {
		return nil, err
	}
	r := new(Report)
	if err := json.Unmarshal(data, r); err != nil {
		return nil, err
	}
	for i, row := range r.Rows { // older reports do not say what is no result
		r.Rows[i] = row.Finish()
	}
	return r, nil
}

// WriteJSON writes the object of the package comment.
func (r *Report) WriteJSON(w io.Writer) error {
	if r.Rows == nil {
		r.Rows = []Row{} // [], not null
	}
	r.Schema = Schema
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("report: %w", err) // a NaN or infinity
	}
	_, err = w.Write(append(b, '\n'))
	return err
}
