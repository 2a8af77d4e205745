package measure

import (
	"fmt"
	"slices"
	"strings"
)

// Chosen reports whether a test is among those asked for by their names, or by
// that of its family: "tcp" asks for "tcp-1". No names ask for all.
func Chosen(names []string, test string) bool {
	return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool {
		return test == name || strings.HasPrefix(test, name+"-")
	})
}

// CheckChoice finds what is impossible in what was asked for, of the tests that
// there are, and says what to do instead.
func CheckChoice(names, tests []string, runs int) error {
	for _, name := range names {
		if !slices.ContainsFunc(tests, func(test string) bool { return Chosen([]string{name}, test) }) {
			return fmt.Errorf("no such test: %q; there are %s", name, strings.Join(tests, ", "))
		}
	}
	if runs < 1 {
		return fmt.Errorf("%d runs give no median: ask for 1 or more, 5 or more for one worth quoting", runs)
	}
	return nil
}
