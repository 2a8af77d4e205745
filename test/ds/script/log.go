package script

import (
	"fmt"
	"strings"
)

// An Entry is a step and what it gave.
type Entry struct {
	Step    string
	Outcome string
}

// A Log is what a play gave, in the order of the steps.
type Log []Entry

func (l Log) String() string {
	var b strings.Builder
	for i, e := range l {
		fmt.Fprintf(&b, "%3d  %-32s %s\n", i+1, e.Step, e.Outcome)
	}
	return b.String()
}

// Diff is empty when the logs are equal. Otherwise it is both outcomes where they
// differ, and then the whole log.
func Diff(want, got Log) string {
	var first, all strings.Builder // reports may be cut
	for i := range max(len(want), len(got)) {
		var w, g Entry
		if i < len(want) {
			w = want[i]
		}
		if i < len(got) {
			g = got[i]
		}
		if w == g {
			fmt.Fprintf(&all, "%3d  %-32s %s\n", i+1, w.Step, w.Outcome)
			continue
		}
		differing := fmt.Sprintf("%3d- %-32s %s\n%3d+ %-32s %s\n", i+1, w.Step, w.Outcome, i+1, g.Step, g.Outcome)
		first.WriteString(differing)
		all.WriteString(differing)
	}
	if first.Len() == 0 {
		return ""
	}
	return first.String() + "in all:\n" + all.String()
}
