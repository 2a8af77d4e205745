package tier

import (
	_ "embed"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"
)

//go:embed tiers.txt
var text string

// A Row is what the list says of one test.
type Row struct {
	Test  string // its name
	Cases string // what its cases are, for the report: "scripts", "seeds"
	Quick Share  // of its cases in make test
	CI    Share  // of the others in make test-ci
}

// A Share is a part of all cases, from 0 to 1.
type Share float64

// Rows are all rows of the list, by name of the test.
var Rows = func() map[string]Row {
	rows, err := parse(text)
	if err != nil {
		panic(err) // the list is a part of the program
	}
	return rows
}()

func parse(text string) (map[string]Row, error) {
	rows := make(map[string]Row)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 4 {
			return nil, fmt.Errorf("tiers.txt:%d: %d columns, want 4: test, cases, share in make test, share in make test-ci", number, len(fields))
		}
		row := Row{Test: fields[0], Cases: fields[1]}
		for i, share := range []*Share{&row.Quick, &row.CI} {
			var err error
			if *share, err = parseShare(fields[2+i]); err != nil {
				return nil, fmt.Errorf("tiers.txt:%d: %w", number, err)
			}
		}
		if _, twice := rows[row.Test]; twice {
			return nil, fmt.Errorf("tiers.txt:%d: %s is listed twice", number, row.Test)
		}
		rows[row.Test] = row
	}
	return rows, nil
}

// parseShare takes "0", "1" or a fraction such as "1/8".
func parseShare(text string) (Share, error) {
	part, whole, isFraction := strings.Cut(text, "/")
	if !isFraction {
		whole = "1"
	}
	n, err1 := strconv.ParseUint(part, 10, 32)
	of, err2 := strconv.ParseUint(whole, 10, 32)
	if err1 != nil || err2 != nil || of == 0 || n > of {
		return 0, fmt.Errorf("%q is no share: want 0, 1 or a fraction such as 1/8", text)
	}
	return Share(n) / Share(of), nil
}

// has says whether a name is in the share of a sample. Names are spread evenly.
func (s Share) has(sample, name string) bool {
	h := fnv.New64a()
	h.Write([]byte(sample + "\x00" + name))
	x := h.Sum64() // its high bits alone depend little on the last letters
	x ^= x >> 33
	x *= 0xff51afd7ed558ccd
	x ^= x >> 33
	return float64(x>>11)/(1<<53) < float64(s)
}

// Single says whether the test is one case itself.
func (r Row) Single() bool {
	return r.Cases == "programs" || r.Cases == "tests" || r.Cases == "matrices"
}
