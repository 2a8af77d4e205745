package page

import (
	"fmt"
	"html"
	"html/template"
	"math"
	"slices"
	"strings"

	"exnet/cmd/dsbench/report"
)

// A Figure is one test as SVG.
type Figure struct {
	Name  string // of its file, without the ending: that of the test
	Title string
	What  string // what the values are
	body  string
	high  int // of its picture
}

const wide = 860 // of all pictures, in their own unit, which browsers scale

// mark tells a figure of ours.
const mark = "made by dsbench"

// style is for figures, alone or on the page. What is exnet has one strong colour, all else is
// grey; lines are told apart by their dashes, and all by the names beside them.
const style = `
:root { color-scheme: light dark; --ink: #1c1e21; --soft: #667; --grid: #dde0e5; --paper: #fff; --glow: #fff;
 --exnet: #0b6bcb; --other: #8a909b; --warn: #b3541e; }
@media (prefers-color-scheme: dark) { :root { --ink: #e8e9eb; --soft: #9aa0ab; --grid: #33373f; --paper: #16181c; --glow: #16181c;
 --exnet: #4aa8e8; --other: #7d838e; --warn: #f08a4b; } }
@media print { :root { --ink: #000; --soft: #444; --grid: #ccc; --paper: #fff; --glow: #fff;
 --exnet: #0b6bcb; --other: #8a909b; --warn: #b3541e; } }
svg.figure { font: 13px system-ui, sans-serif; max-width: 100%; height: auto; }
svg.figure text { fill: var(--ink); } svg.figure text.soft { fill: var(--soft); }
svg.figure .grid { stroke: var(--grid); } svg.figure .axis { stroke: var(--soft); }
svg.figure .line { fill: none; stroke-width: 2; } svg.figure .whisker { stroke-width: 1.2; opacity: .7; }
svg.figure .thesis { stroke: var(--soft); stroke-dasharray: 5 4; } svg.figure .band { fill: var(--soft); opacity: .13; }
svg.figure .point:hover, svg.figure .point:focus { stroke: var(--ink); stroke-width: 2; outline: none; }
`

// Alone is the figure as a file of its own.
func (f Figure) Alone() string {
	return fmt.Sprintf("<!-- %s --><svg xmlns=\"http://www.w3.org/2000/svg\" class=\"figure\" viewBox=\"0 0 %d %d\" width=\"%d\" height=\"%d\" role=\"img\">"+
		"<title>%s</title><style>%s</style><rect width=\"100%%\" height=\"100%%\" style=\"fill: var(--paper)\"/>\n%s</svg>\n",
		mark, wide, f.high, wide, f.high, html.EscapeString(f.Title+": "+f.What), style, f.body)
}

// Inline is the figure as part of the page, whose style it uses.
func (f Figure) Inline() template.HTML {
	return template.HTML(fmt.Sprintf("<svg class=\"figure\" viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">\n%s</svg>",
		wide, f.high, html.EscapeString(f.Title+": "+f.What), f.body))
}

// Figures are those of a report, in the order of its tests. A test of one row has none.
func Figures(r *report.Report) (figures []Figure) {
	colours := map[string]string{}
	var tests []string
	for _, row := range r.Rows {
		if !slices.Contains(tests, row.Test) {
			tests = append(tests, row.Test)
		}
		if colours[row.Path] == "" {
			colours[row.Path] = colourOf(row.Path)
		}
	}
	for _, test := range tests {
		d := drawing{colours: colours, dashes: map[string]string{}}
		places := map[string]bool{}
		for _, row := range r.Rows {
			if row.Test == test {
				d.rows = append(d.rows, row)
				places[row.At()] = true
				if row.Setting != nil {
					d.setting = row.Setting.Of
				}
			}
		}
		if len(d.rows) < 2 {
			continue
		}
		f := Figure{Name: test, Title: test, What: strings.TrimPrefix(d.rows[0].What+"; ", "; ") + better(d.rows[0].Unit)}
		if len(places) > 1 {
			f.body, f.high = d.lines(test)
		} else {
			f.Title = strings.TrimSpace(test + " " + d.rows[0].At())
			f.body, f.high = d.bars()
		}
		figures = append(figures, f)
	}
	return figures
}

// A drawing is a figure in the making.
type drawing struct {
	strings.Builder
	rows    []report.Row
	setting string            // that they differ in; "": their size
	colours map[string]string // by path
	dashes  map[string]string // of lines, by path
}

// ours are the paths that are exnet, and those that begin like one of them.
var ours = []string{"ds", "exn0", "fabric", "shm", "ext-ds", "preload", "go", "bridge-preload", "lane"}

// IsExnet says whether a path goes over exnet.
func IsExnet(path string) bool {
	return slices.ContainsFunc(ours, func(name string) bool {
		return path == name || strings.HasPrefix(path, name+"-") && !strings.HasSuffix(path, "-on-tcp")
	})
}

func colourOf(path string) string {
	if IsExnet(path) {
		return "var(--exnet)"
	}
	return "var(--other)"
}

// dashed are the kinds of lines that tell paths of one colour apart.
var dashed = []string{"none", "7 4", "2 3", "10 3 2 3", "1 5", "14 4"}

// dash is that of a path's line: those of a colour each have their own.
func (d *drawing) dash(path string) string {
	if d.dashes[path] == "" {
		n := 0
		for other := range d.dashes {
			if d.colours[other] == d.colours[path] {
				n++
			}
		}
		d.dashes[path] = dashed[n%len(dashed)]
	}
	return d.dashes[path]
}

// better says which direction is.
func better(u report.Unit) string {
	if u.LowerIsBetter() {
		return "less is better"
	}
	return "more is better"
}

func (d *drawing) add(format string, args ...any) { fmt.Fprintf(d, format+"\n", args...) }

// halo keeps a text readable over lines.
const halo = `style="paint-order:stroke;stroke:var(--glow);stroke-width:3"`

func (d *drawing) text(x, y float64, how, text string) {
	d.add(`<text x="%.1f" y="%.1f" %s>%s</text>`, x, y, how, html.EscapeString(text))
}

// tip is what is shown of a row when its point is hovered.
func tip(row report.Row) string {
	lines := []string{strings.TrimSpace(row.Path + ", " + row.Test + " " + row.At()), row.FormatValue()}
	if row.NoResult != "" {
		lines = append(lines, row.NoResult)
	}
	if len(row.Quartiles) == 2 {
		lines = append(lines, fmt.Sprintf("middle half of %d runs: %s … %s", len(row.Runs), row.Unit.Format(row.Quartiles[0]), row.Unit.Format(row.Quartiles[1])))
	}
	if gain := row.FormatGain(); gain != "" {
		lines = append(lines, gain+" the reference, "+row.Against)
	}
	if p := row.Percentiles; p != nil {
		lines = append(lines, fmt.Sprintf("99 %%: %s, 99.9 %%: %s, longest: %s", row.Unit.Format(p.P99), row.Unit.Format(p.P999), row.Unit.Format(p.Max)))
	}
	if row.Disturbed > 0 {
		lines = append(lines, fmt.Sprintf("noisy: %d of %d runs", row.Disturbed, len(row.Runs)))
	}
	if row.Note != "" {
		lines = append(lines, row.Note)
	}
	return strings.Join(lines, "\n")
}

// point opens an element that shows its row when it is hovered or has the focus.
func (d *drawing) point(row report.Row, element string, args ...any) {
	fill := d.colours[row.Path]
	if row.Disturbed > 0 {
		fill += ";fill-opacity:.35"
	}
	text := html.EscapeString(tip(row))
	d.add(`<%s class="point" tabindex="0" style="fill:%s;stroke:%s" data-tip="%s"><title>%s</title></%s>`,
		fmt.Sprintf(element, args...), fill, d.colours[row.Path], strings.ReplaceAll(text, "\n", "&#10;"), text, strings.Fields(element)[0])
}

// A scale places values on an axis.
type scale struct {
	low, high float64 // values at both ends
	from, to  float64 // where they are
	log       bool
	binary    bool // round are powers of two
}

func (s scale) at(v float64) float64 {
	if s.log {
		return s.from + (s.to-s.from)*math.Log(v/s.low)/math.Log(s.high/s.low)
	}
	return s.from + (s.to-s.from)*(v-s.low)/(s.high-s.low)
}

// farApart is from which ratio of the largest to the smallest an axis is logarithmic.
const farApart = 15

// valueScale is an axis for the values of the rows, and more.
func (d *drawing) valueScale(from, to float64, linear bool, more ...float64) scale {
	low, high := math.Inf(1), 0.0
	take := func(v float64) {
		if v > 0 {
			low, high = min(low, v), max(high, v)
		}
	}
	for _, row := range d.rows {
		if row.NoResult != "" {
			continue
		}
		take(row.Value)
		for _, q := range row.Quartiles {
			take(q)
		}
	}
	for _, v := range more {
		take(v)
	}
	if math.IsInf(low, 1) { // all of them are 0
		low, high = 1, 1
	}
	if high/low < farApart || linear {
		return scale{0, high * 1.08, from, to, false, false}
	}
	return scale{math.Pow(10, math.Floor(math.Log10(low)*2)/2) * 0.9, high * 1.2, from, to, true, d.rows[0].Unit == report.Bytes}
}

// ticks are round values on the axis.
func (s scale) ticks() (ticks []float64) {
	if s.log && s.binary {
		step := 2.0
		for math.Pow(step, 8) < s.high/s.low {
			step *= 2
		}
		for v := math.Exp2(math.Ceil(math.Log2(s.low))); v <= s.high; v *= step {
			ticks = append(ticks, v)
		}
		return ticks
	}
	if s.log {
		steps := []float64{1, 2, 5}
		if s.high/s.low > 1000 {
			steps = steps[:1]
		}
		for decade := math.Pow(10, math.Floor(math.Log10(s.low))); decade <= s.high; decade *= 10 {
			for _, step := range steps {
				if v := decade * step; v >= s.low && v <= s.high {
					ticks = append(ticks, v)
				}
			}
		}
		return ticks
	}
	step := math.Pow(10, math.Floor(math.Log10(s.high/4)))
	for _, by := range []float64{5, 2} {
		if s.high/(step*by) >= 4 {
			step *= by
			break
		}
	}
	for i := 0; float64(i)*step <= s.high; i++ {
		ticks = append(ticks, float64(i)*step)
	}
	return ticks
}

// label prints a tick without digits that say nothing.
func label(u report.Unit, v float64) string {
	number, unit, found := strings.Cut(u.Format(v), " ")
	if strings.Contains(number, ".") {
		number = strings.TrimRight(strings.TrimRight(number, "0"), ".")
	}
	if !found {
		return number
	}
	return number + " " + unit
}
