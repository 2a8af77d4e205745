package page

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"

	"exnet/cmd/dsbench/report"
)

// bars draws a test of one size: a bar for each path, downwards.
func (d *drawing) bars() (body string, high int) {
	const left, right, top, each, bottom = 130, 190, 14, 30, 40
	end := float64(top + each*len(d.rows))
	s := d.valueScale(left, wide-right, false)
	free := 0.0 // of labels, from here on
	for _, v := range s.ticks() {
		d.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/>`, s.at(v), s.at(v), top, end)
		name := label(d.rows[0].Unit, v)
		if half := float64(4 * utf8.RuneCountInString(name)); s.at(v)-half >= free {
			d.text(s.at(v), end+17, `class="soft" text-anchor="middle"`, name)
			free = s.at(v) + half + 4
		}
	}
	if s.log {
		d.text(left, end+34, `class="soft" font-size="11"`, "logarithmic")
	}
	for i, row := range d.rows {
		y := float64(top + i*each)
		name := `text-anchor="end"`
		if IsExnet(row.Path) {
			name += ` font-weight="700"`
		}
		d.text(left-10, y+19, name, row.Path)
		if row.NoResult != "" {
			d.point(row, `circle r="4" cx="%d" cy="%.1f"`, left+4, y+15)
			d.text(left+14, y+19, `class="soft" `+halo, row.FormatValue())
			continue
		}
		x := s.from
		if row.Value > 0 {
			x = s.at(row.Value)
		}
		d.point(row, `rect x="%d" y="%.1f" width="%.1f" height="%d" rx="2"`, left, y+5, max(1, x-left), each-10)
		past := x
		if len(row.Quartiles) == 2 && row.Quartiles[0] > 0 {
			a, b := s.at(row.Quartiles[0]), s.at(row.Quartiles[1])
			d.add(`<path class="whisker" style="stroke:var(--ink)" d="M%.1f %.1fH%.1fM%.1f %.1fv8M%.1f %.1fv8"/>`, a, y+15, b, a, y+11, b, y+11)
			past = max(past, b)
		}
		value := row.Unit.Format(row.Value)
		if gain := row.FormatGain(); gain != "" {
			value += "  " + gain
		}
		if row.Disturbed > 0 {
			value += "  noisy"
		}
		d.text(past+8, y+19, halo, value)
	}
	return d.String(), int(end) + bottom
}

// lines draws a test over sizes, or over a setting: a line for each path. What a setting
// does not touch is a level line.
func (d *drawing) lines(test string) (body string, high int) {
	const left, right, top, bottom, height = 92, 150, 16, 48, 440
	var paths []string
	var places []report.Row // one for each place on the axis
	for _, row := range d.rows {
		if !slices.Contains(paths, row.Path) {
			paths = append(paths, row.Path)
		}
		at, ok := row.On(d.setting)
		if ok && !slices.ContainsFunc(places, func(other report.Row) bool { x, _ := other.On(d.setting); return x == at }) {
			places = append(places, row)
		}
	}
	slices.SortFunc(places, func(a, b report.Row) int {
		p, _ := a.On(d.setting)
		q, _ := b.On(d.setting)
		return cmp.Compare(p, q)
	})
	least, _ := places[0].On(d.setting)
	most, _ := places[len(places)-1].On(d.setting)
	x := scale{least, most, left, wide - right, true, false}
	var beside []reference
	var values []float64
	for _, ref := range references {
		if ref.test == test && ref.unit == d.rows[0].Unit {
			beside, values = append(beside, ref), append(values, ref.low, ref.high)
		}
	}
	y := d.valueScale(height-bottom, top, false, values...)
	for _, v := range y.ticks() {
		d.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, wide-right, y.at(v), y.at(v))
		d.text(left-8, y.at(v)+4, `class="soft" text-anchor="end"`, label(d.rows[0].Unit, v))
	}
	for at, name := range d.along(places) {
		d.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x.at(at), x.at(at), top, height-bottom)
		d.text(x.at(at), height-bottom+18, `class="soft" text-anchor="middle"`, name)
	}
	axes := "size of a message"
	if d.setting != "" {
		axes = d.setting
	}
	if y.log {
		axes += "; both axes are logarithmic"
	} else {
		axes += "; logarithmic"
	}
	d.text((left+wide-right)/2, height-10, `class="soft" text-anchor="middle" font-size="12"`, axes)
	for _, ref := range beside {
		d.reference(ref, x, y)
	}
	var ends []float64 // where the names of lines are
	for _, path := range paths {
		var over []report.Row
		for _, row := range d.rows {
			if row.Path == path && row.Value > 0 && row.NoResult == "" {
				over = append(over, row)
			}
		}
		if len(over) == 0 {
			continue
		}
		end, at := d.line(over, x, y)
		for slices.ContainsFunc(ends, func(other float64) bool { return math.Abs(other-at) < 14 }) {
			at += 2 // below the others
		}
		ends = append(ends, at)
		weight := "400"
		if IsExnet(path) {
			weight = "700"
		}
		d.text(end+10, at+4, fmt.Sprintf(`style="fill:%s" font-weight="%s"`, d.colours[path], weight), path)
	}
	for _, ref := range beside { // over the lines
		above := y.to + 12 // a place: at the top of its line
		if ref.high > 0 {
			above = y.at(ref.high)
		}
		d.text(x.start(ref.from)+6, above-4, `class="soft" font-size="11" `+halo, ref.what)
	}
	return d.String(), height
}

// along are the places of an axis that get a name: all, or of sizes each fourfold one.
func (d *drawing) along(places []report.Row) map[float64]string {
	names := map[float64]string{}
	next := 0.0
	for _, row := range places {
		at, _ := row.On(d.setting)
		if d.setting != "" || at >= next {
			names[at] = row.At()
			next = 3 * at
		}
	}
	return names
}

// line draws the rows of a path, and returns where it ends.
func (d *drawing) line(rows []report.Row, x, y scale) (endX, endY float64) {
	colour := d.colours[rows[0].Path]
	if _, ok := rows[0].On(d.setting); !ok { // one row, the same everywhere
		at := y.at(rows[0].Value)
		d.add(`<line class="line" style="stroke:%s;stroke-dasharray:2 4" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, colour, x.from, x.to, at, at)
		d.point(rows[0], `circle r="4" cx="%.1f" cy="%.1f"`, x.to, at)
		return x.to, at
	}
	var track []string
	place := func(row report.Row) (float64, float64) {
		at, _ := row.On(d.setting)
		return x.at(at), y.at(row.Value)
	}
	for _, row := range rows {
		endX, endY = place(row)
		track = append(track, fmt.Sprintf("%.1f %.1f", endX, endY))
		if len(row.Quartiles) == 2 && row.Quartiles[0] > 0 {
			d.add(`<line class="whisker" style="stroke:%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, colour, endX, endX, y.at(row.Quartiles[0]), y.at(row.Quartiles[1]))
		}
	}
	d.add(`<path class="line" style="stroke:%s;stroke-dasharray:%s" d="M%s"/>`, colour, d.dash(rows[0].Path), strings.Join(track, "L"))
	for _, row := range rows {
		px, py := place(row)
		d.point(row, `circle r="4" cx="%.1f" cy="%.1f"`, px, py)
	}
	return endX, endY
}

// A reference is a number that the thesis gives for what a figure shows: a value or a range of
// them, at all places or between two.
type reference struct {
	test      string
	unit      report.Unit
	low, high float64 // values; 0: any
	from, to  float64 // places; 0: all
	what      string
}

// references are those of chapter 5, sections 5.4.1, 5.4.3, 5.4.6.2, 5.6.3.1 and 5.6.3.2: bandwidths are peaks.
var references = []reference{
	{"stream", report.BitsPerSecond, 8 * 7.9e9, 8 * 8.3e9, 0, 0, "thesis, figures 5.26a and 5.27b: EXN, one stream, 7.9 GB/s, tuned 8.3"},
	{"stream", report.BitsPerSecond, 8 * 5.3e9, 8 * 5.3e9, 0, 0, "thesis, figure 5.27a: EXN from the other NUMA node, 5.3 GB/s"},
	{"stream-2", report.BitsPerSecond, 8 * 8.82e9, 8 * 8.82e9, 4 << 10, 128 << 10, "thesis, figure 5.26b: EXN, two streams, 8.82 GB/s"},
	{"stream-2", report.BitsPerSecond, 8 * 7.2e9, 8 * 7.2e9, 0, 0, "thesis, figure 5.27a: EXN from the other NUMA node, 7.2 GB/s"},
	{"rr", report.Nanoseconds, 5700, 8600, 0, 0, "thesis, figure 5.28: EXN, small messages, 5.7 to 8.6 µs"},
	{"rr", report.Nanoseconds, 850, 1300, 0, 0, "thesis, figure 5.28: AF_EXTL, small messages, 0.85 to 1.3 µs"},
	{"message-rate", report.MessagesPerSec, 0, 0, 32, 8 << 10, "thesis, figure 5.32: stable from 32 bytes to 8 KB (Open MPI over EXN)"},
	{"threshold-exn0", report.Nanoseconds, 0, 0, 120, 480, "thesis, 5.4.6.2: threshold of 120 to 480 bytes"},
	{"budget", report.BitsPerSecond, 0, 0, 64, 64, "thesis, 5.4.6.2: default"},
	{"mtu", report.BitsPerSecond, 0, 0, 65535, 65535, "thesis, 5.4.3: default"},
}

// start is where a value is, or the beginning of the axis for none.
func (s scale) start(v float64) float64 {
	if v == 0 {
		return min(s.from, s.to)
	}
	return s.at(v)
}

// reference draws a line, or a band for a range.
func (d *drawing) reference(ref reference, x, y scale) {
	x1, x2, y1, y2 := x.from, x.to, y.to, y.from // y upwards
	if ref.to > 0 {
		x1, x2 = x.at(max(ref.from, x.low)), x.at(min(ref.to, x.high))
	}
	if ref.high > 0 {
		y1, y2 = y.at(ref.high), y.at(ref.low)
	}
	if x2 > x1 && y2 > y1 {
		d.add(`<rect class="band" x="%.1f" y="%.1f" width="%.1f" height="%.1f"/>`, x1, y1, x2-x1, y2-y1)
	}
	if ref.high > 0 {
		y2 = y1
	} else {
		x2 = x1
	}
	d.add(`<line class="thesis" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, x1, x2, y1, y2)
}
