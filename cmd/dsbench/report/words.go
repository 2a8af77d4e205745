package report

import (
	"fmt"
	"math"
	"strconv"
)

// alike is how far from 1 a ratio may be of what is about the same.
const alike = 0.05

// shares are the names of 1/2, 1/3 and so on.
var shares = []string{"half", "a third", "a quarter", "a fifth", "a sixth", "a seventh", "an eighth", "a ninth", "a tenth"}

// Share names a part of a whole in words: 0.21 is "a fifth", 0.4 is "40 %".
func Share(x float64) string {
	const near = 0.12 // of the fraction that is named
	if x <= 0 {
		return "0 %"
	}
	n := int(math.Round(1 / x))
	if n >= 2 && math.Abs(x*float64(n)-1) <= near {
		if n-2 < len(shares) {
			return shares[n-2]
		}
		return fmt.Sprintf("1/%d", n)
	}
	return fmt.Sprintf("%.0f %%", 100*x)
}

// Times prints a factor of 1 or more for a sentence: "4 ×", "1.3 ×", "18 ×".
func Times(x float64) string {
	if x >= 9.95 {
		return fmt.Sprintf("%.0f ×", x)
	}
	return strconv.FormatFloat(math.Round(x*10)/10, 'f', -1, 64) + " ×"
}

// AsMany says how many times as many there are: "4 × as many", "about as many", "only half as many".
func AsMany(ratio float64) string {
	switch {
	case math.Abs(ratio-1) <= alike:
		return "about as many"
	case ratio > 1:
		return Times(max(ratio, 1.1)) + " as many"
	}
	return "only " + Share(ratio) + " as many"
}

// OfThe says what part of something is needed: "a fifth of the", "about the same", "1.3 × the".
func OfThe(ratio float64) string {
	switch {
	case math.Abs(ratio-1) <= alike:
		return "about the same"
	case ratio > 1:
		return Times(max(ratio, 1.1)) + " the"
	}
	return Share(ratio) + " of the"
}
