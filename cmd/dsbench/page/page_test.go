package page

import (
	"bytes"
	"encoding/csv"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// sample is a report with a test of one size and one of several, and of everything that
// can be said about rows.
func sample() *report.Report {
	r := &report.Report{Machine: report.Machine{Time: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC), Command: []string{"dsbench", "--path", "<script>"},
		CPU: "a CPU & more", CPUs: 2, Go: "go1.26.8"}}
	var times measure.Histogram
	for ns := range int64(1000) {
		times.Add(20_000 + ns*ns)
	}
	for i, path := range []string{"tcp", "unix", "ds-preload"} {
		fast := math.Pow(10, float64(-i))
		r.Rows = append(r.Rows, report.Row{Test: "rr-one", Path: path, Size: 64, Unit: report.Nanoseconds, Runs: []float64{25e3 * fast, 26e3 * fast, 24e3 * fast},
			ReferenceRuns: []float64{25e3, 25e3, 25e3}, What: "half of a round trip", Against: "kernel TCP", Percentiles: report.PercentilesOf(&times, 0.5)}.Finish())
		for size := 1; size <= 4<<20; size *= 16 {
			r.Rows = append(r.Rows, report.Row{Test: "stream", Path: path, Size: size, Unit: report.BitsPerSecond,
				Runs: []float64{1e6 * float64(size+i), 1.1e6 * float64(size+i)}, What: "what one connection carries", Disturbed: i}.Finish())
		}
	}
	r.Rows = append(r.Rows, report.Row{Test: "idle", Path: "exn0", Unit: report.PercentOfCPU, Runs: []float64{0}}.Finish())
	r.Fail("crr ds-preload", errors.New("wrong data: <b>"))
	r.Skip("exn0", errors.New("needs root"))
	return r
}

// wellFormed checks XML.
func wellFormed(text string) error {
	for d := xml.NewDecoder(strings.NewReader(text)); ; {
		if _, err := d.Token(); err == io.EOF {
			return nil
		} else if err != nil {
			return err
		}
	}
}

func TestFiguresStandAlone(t *testing.T) {
	figures := Figures(sample())
	if len(figures) != 2 || figures[0].Name != "rr-one" || figures[1].Name != "stream" {
		t.Fatalf("%d figures", len(figures))
	}
	for _, f := range figures {
		text := f.Alone()
		if err := wellFormed(text); err != nil {
			t.Errorf("%s: %v", f.Name, err)
		}
		for _, want := range []string{"ds-preload", "logarithmic", "data-tip", "prefers-color-scheme"} {
			if !strings.Contains(text, want) {
				t.Errorf("%s: no %q", f.Name, want)
			}
		}
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: places nothing can be at", f.Name)
		}
	}
	if !strings.Contains(figures[1].body, "thesis, figures 5.26a and 5.27b") {
		t.Error("the reference of the thesis is not drawn")
	}
	if n := strings.Count(figures[1].body, `class="point"`); n != 3*6 {
		t.Errorf("%d points of %d rows", n, 3*6)
	}
}

// A test over a setting has its values along the axis, and what the setting does not touch
// as a level line.
func TestFigureOverASetting(t *testing.T) {
	r := &report.Report{}
	add := func(path string, setting *report.Setting, value float64) {
		r.Rows = append(r.Rows, report.Row{Test: "mtu", Path: path, Size: 128 << 10, Setting: setting, Unit: report.BitsPerSecond, Runs: []float64{value}}.Finish())
	}
	add("tcp", nil, 5e10)
	for i, mtu := range []float64{1500, 9000, 65535} {
		add("exn0", &report.Setting{Of: "MTU", Value: mtu}, 1e10*float64(i+1))
	}
	figures := Figures(r)
	if len(figures) != 1 || figures[0].Title != "mtu" {
		t.Fatalf("%+v", figures)
	}
	body := figures[0].body
	if err := wellFormed(figures[0].Alone()); err != nil {
		t.Error(err)
	}
	for _, want := range []string{">1500<", ">9000<", ">65535<", ">MTU; logarithmic<", "stroke-dasharray:2 4", "exn0, mtu 9000", "thesis, 5.4.3"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %q in %s", want, body)
		}
	}
	if n := strings.Count(body, `class="point"`); n != 4 || strings.Contains(body, "NaN") || strings.Contains(body, "Inf") {
		t.Errorf("%d points of 4 rows, or places nothing can be at", n)
	}
}

// Rows that are all 0, or equal, are drawn, too.
func TestFiguresOfLittle(t *testing.T) {
	for _, v := range []float64{0, 7} {
		r := &report.Report{}
		for _, path := range []string{"a", "b"} {
			r.Rows = append(r.Rows, report.Row{Test: "x", Path: path, Unit: report.Bytes, Runs: []float64{v, v}}.Finish())
		}
		for _, f := range Figures(r) {
			if err := wellFormed(f.Alone()); err != nil || strings.Contains(f.body, "NaN") || strings.Contains(f.body, "Inf") {
				t.Errorf("of %v: %v in\n%s", v, err, f.body)
			}
		}
	}
}

// A larger value is farther along the axis, and ticks are on it.
func TestScales(t *testing.T) {
	for _, values := range [][2]float64{{1, 2}, {20e3, 26e3}, {100, 25e3}, {0.001, 3e12}, {900, 1100}} {
		d := drawing{rows: []report.Row{{Value: values[0]}, {Value: values[1]}}}
		s := d.valueScale(100, 500, false)
		a, b := s.at(values[0]), s.at(values[1])
		if !(100 <= a && a < b && b <= 500) {
			t.Errorf("%v are at %v and %v", values, a, b)
		}
		if s.log != (values[1]/values[0] >= farApart) {
			t.Errorf("%v: logarithmic is %v", values, s.log)
		}
		bytes := s
		bytes.binary = true
		for _, v := range bytes.ticks() {
			if s.log && math.Exp2(math.Round(math.Log2(v))) != v {
				t.Errorf("%v bytes are no power of two", v)
			}
		}
		if n := len(bytes.ticks()); n < 2 || n > 20 {
			t.Errorf("%v: %d ticks of bytes", values, n)
		}
		ticks := s.ticks()
		if len(ticks) < 2 || len(ticks) > 20 || !slices.IsSorted(ticks) || s.at(ticks[len(ticks)-1]) > 500.1 || s.at(ticks[0]) < 99.9 {
			t.Errorf("%v: ticks %v", values, ticks)
		}
	}
}

// A directory that cannot be written to is found out beforehand; one that can is left as it was.
func TestMake(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new")
	if err := Make(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
	for _, dir := range []string{"/dev/null", "/dev/null/below", "/proc"} {
		if err := Make(dir); err == nil || !strings.Contains(err.Error(), "--out") {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// A report is written whole, anew over an old one, and removes only figures of ours.
func TestWrite(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "report")
	if err := Write(dir, sample()); err != nil {
		t.Fatal(err)
	}
	foreign := filepath.Join(dir, "holiday.svg")
	if err := os.WriteFile(foreign, []byte("<svg/>"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := sample()
	r.Rows = r.Rows[:1]
	if err := Write(dir, r); err != nil {
		t.Fatal(err)
	}
	var names []string
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if want := []string{"holiday.svg", Index, CSV, Results}; !slices.Equal(names, want) {
		t.Errorf("%v instead of %v", names, want)
	}
	f, err := os.Open(filepath.Join(dir, Results))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := report.Read(f); err != nil {
		t.Error(err)
	}
	if err := Write(foreign, r); err == nil {
		t.Error("a file is a directory")
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	r := sample()
	if err := WriteCSV(&b, r); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&b).ReadAll() // refuses lines of different length
	if err != nil || len(lines) != len(r.Rows)+1 {
		t.Errorf("%d lines, %v", len(lines), err)
	}
}

// The page says all there is to say, refers to nothing outside, and takes nothing in a
// report for a part of itself.
func TestHTML(t *testing.T) {
	var b bytes.Buffer
	r := sample()
	if err := WriteHTML(&b, r, Figures(r)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"This report is partial", "wrong data: &lt;b&gt;", "needs root", "a CPU &amp; more", "--path &lt;script&gt;", `id="rows"`, "25.0 µs", "(2 noisy)"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q", want)
		}
	}
	for _, bad := range []string{"http://", "https://", "src=", "href=", "@import", "ZgotmplZ", "<b>\n"} {
		if strings.Contains(text, bad) {
			t.Errorf("there is %q", bad)
		}
	}
}
