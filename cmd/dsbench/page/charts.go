package page

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"exnet/cmd/dsbench/report"
)

// bars draws a test of one size: a bar for each path, downwards.
func (d *drawing) bars() (body string, high int) {
	const left, right, top, each, bottom = 130, 190, 14, 30, 40
	end := float64(top + each*len(d.rows))
	s := d.valueScale(left, wide-right, false)
	for _, v := range s.ticks() {
		d.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/>`, s.at(v), s.at(v), top, end)
		d.text(s.at(v), end+17, `class="soft" text-anchor="middle"`, label(d.rows[0].Unit, v))
	}
	if s.log {
		d.text(left, end+34, `class="soft" font-size="11"`, "logarithmic")
	}
	for i, row := range d.rows {
		y := float64(top + i*each)
		d.text(left-10, y+19, `text-anchor="end"`, row.Path)
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
		if row.Ratio != nil {
			value += "  " + report.FormatRatio(*row.Ratio)
		}
		if row.Disturbed > 0 {
			value += "  noisy"
		}
		d.text(past+8, y+19, halo, value)
	}
	return d.String(), int(end) + bottom
}

// lines draws a test over sizes: a line for each path.
func (d *drawing) lines(test string) (body string, high int) {
	const left, right, top, bottom, height = 92, 150, 16, 48, 440
	var paths []string
	smallest, largest := math.MaxInt, 0
	for _, row := range d.rows {
		if !slices.Contains(paths, row.Path) {
			paths = append(paths, row.Path)
		}
		smallest, largest = min(smallest, max(1, row.Size)), max(largest, row.Size)
	}
	var beside []reference
	var values []float64
	for _, ref := range references {
		if ref.test == test && ref.unit == d.rows[0].Unit {
			beside, values = append(beside, ref), append(values, ref.low, ref.high)
		}
	}
	x := scale{float64(smallest), float64(largest), left, wide - right, true}
	y := d.valueScale(height-bottom, top, false, values...)
	for _, v := range y.ticks() {
		d.add(`<line class="grid" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, wide-right, y.at(v), y.at(v))
		d.text(left-8, y.at(v)+4, `class="soft" text-anchor="end"`, label(d.rows[0].Unit, v))
	}
	for size := smallest; size <= largest; size *= 4 {
		d.add(`<line class="grid" x1="%.1f" x2="%.1f" y1="%d" y2="%d"/>`, x.at(float64(size)), x.at(float64(size)), top, height-bottom)
		d.text(x.at(float64(size)), height-bottom+18, `class="soft" text-anchor="middle"`, report.FormatSize(size))
	}
	axes := "size of a message"
	if y.log {
		axes += "; both axes are logarithmic"
	}
	d.text((left+wide-right)/2, height-10, `class="soft" text-anchor="middle" font-size="12"`, axes)
	for _, ref := range beside {
		d.reference(ref, y, left, wide-right)
	}
	var ends []float64 // where the names of lines are
	for _, path := range paths {
		var track []string
		var last report.Row
		for _, row := range d.rows {
			if row.Path != path || row.Value <= 0 {
				continue
			}
			px, py := x.at(float64(max(1, row.Size))), y.at(row.Value)
			track = append(track, fmt.Sprintf("%.1f %.1f", px, py))
			last = row
			if len(row.Quartiles) == 2 && row.Quartiles[0] > 0 {
				d.add(`<line class="whisker" style="stroke:%s" x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"/>`, d.colours[path], px, px, y.at(row.Quartiles[0]), y.at(row.Quartiles[1]))
			}
		}
		if len(track) == 0 {
			continue
		}
		d.add(`<path class="line" style="stroke:%s" d="M%s"/>`, d.colours[path], strings.Join(track, "L"))
		for _, row := range d.rows {
			if row.Path == path && row.Value > 0 {
				d.point(row, `circle r="4" cx="%.1f" cy="%.1f"`, x.at(float64(max(1, row.Size))), y.at(row.Value))
			}
		}
		at := y.at(last.Value)
		for slices.ContainsFunc(ends, func(other float64) bool { return math.Abs(other-at) < 14 }) {
			at += 2 // below the others
		}
		ends = append(ends, at)
		d.text(x.at(float64(max(1, last.Size)))+10, at+4, fmt.Sprintf(`style="fill:%s"`, d.colours[path]), path)
	}
	for _, ref := range beside { // over the lines
		d.text(left+6, y.at(ref.high)-4, `class="soft" font-size="11" `+halo, ref.what)
	}
	return d.String(), height
}

// A reference is a number that the thesis gives for what a figure shows.
type reference struct {
	test      string
	unit      report.Unit
	low, high float64 // equal, or the ends of a range
	what      string
}

// references are those of chapter 5, sections 5.6.3.1 and 5.6.3.2: bandwidths are peaks.
var references = []reference{
	{"stream", report.BitsPerSecond, 8 * 7.9e9, 8 * 8.3e9, "thesis, figures 5.26a and 5.27b: EXN, one stream, 7.9 GB/s, tuned 8.3"},
	{"stream-2", report.BitsPerSecond, 8 * 8.82e9, 8 * 8.82e9, "thesis, figure 5.26b: EXN, two streams, 8.82 GB/s"},
	{"rr", report.Nanoseconds, 5700, 8600, "thesis, figure 5.28: EXN, small messages, 5.7 to 8.6 µs"},
	{"rr", report.Nanoseconds, 850, 1300, "thesis, figure 5.28: AF_EXTL, small messages, 0.85 to 1.3 µs"},
}

func (d *drawing) reference(ref reference, y scale, left, right int) {
	a, b := y.at(ref.high), y.at(ref.low)
	if ref.low != ref.high {
		d.add(`<rect class="band" x="%d" y="%.1f" width="%d" height="%.1f"/>`, left, a, right-left, b-a)
	}
	d.add(`<line class="thesis" x1="%d" x2="%d" y1="%.1f" y2="%.1f"/>`, left, right, a, a)
}
