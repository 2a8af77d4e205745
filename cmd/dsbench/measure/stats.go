package measure

import (
	"math"
	"slices"
)

// Median returns the median of xs, 0 if there are none.
func Median(xs []float64) float64 { return quantile(xs, 0.5) }

// Spread returns the interquartile range of xs as a share of their median.
func Spread(xs []float64) float64 {
	m := Median(xs)
	if m == 0 {
		return 0
	}
	low, high := Quartiles(xs)
	return (high - low) / math.Abs(m)
}

// Quartiles returns between what the middle half of xs lies.
func Quartiles(xs []float64) (low, high float64) { return quantile(xs, 0.25), quantile(xs, 0.75) }

// Ratios returns subject/reference pair by pair: value against the value
// that was measured beside it.
func Ratios(reference, subject []float64) []float64 {
	out := make([]float64, 0, len(subject))
	for i := range min(len(reference), len(subject)) {
		if reference[i] != 0 {
			out = append(out, subject[i]/reference[i])
		}
	}
	return out
}

// MedianInterval returns the interval in which the median that xs were drawn
// from lies in 95 of 100 cases, whatever their distribution: counted from both
// ends of the sorted xs. ok is false below 10, which say too little.
func MedianInterval(xs []float64) (low, high float64, ok bool) {
	n := len(xs)
	if n < 10 {
		return 0, 0, false
	}
	s := slices.Sorted(slices.Values(xs))
	// How many of n fall below the median is binomial: here by its normal
	// approximation, which is good from 10 on.
	k := int(math.Floor(float64(n)/2 - 1.96*math.Sqrt(float64(n))/2))
	return s[k], s[n-1-k], true
}

// quantile interpolates linearly between the two nearest of the sorted xs.
func quantile(xs []float64, q float64) float64 {
	if len(xs) == 0 {
		return 0
	}
	s := slices.Sorted(slices.Values(xs))
	at := q * float64(len(s)-1)
	i := int(at)
	if i+1 == len(s) {
		return s[i]
	}
	return s[i] + (at-float64(i))*(s[i+1]-s[i])
}
