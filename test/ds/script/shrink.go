package script

import "slices"

// Shrink drops steps of a script as long as what is left still fails, first
// many at once, then one by one. fails is called often; it must be able to
// judge any subsequence of the steps.
func Shrink(s Script, fails func(Script) bool) Script {
	for size := max(1, len(s.Steps)/2); ; {
		dropped := false
		for from := 0; from < len(s.Steps); {
			to := min(from+size, len(s.Steps))
			less := Script{Name: s.Name, Steps: slices.Concat(s.Steps[:from], s.Steps[to:])}
			if fails(less) {
				s, dropped = less, true
				continue // the next ones have moved here
			}
			from = to
		}
		switch {
		case size > 1:
			size /= 2
		case !dropped:
			return s
		}
	}
}
