package measure

import "slices"

// confidence is that of Shift: a change that is claimed is none in one of a
// hundred rows. With less, a comparison of a hundred rows would cry wolf five times; with more,
// five runs on either side could never tell.
const confidence = 0.99

// ByChance is how often Shift claims a change that is none.
const ByChance = 1 - confidence

// Shift says by what factor after differs from before: the median of the
// factors between all pairs (Hodges and Lehmann), and the interval in which the
// factor lies in 99 of 100 cases, whatever the distribution. The interval is that of the
// exact Mann-Whitney test:
//
//	sort the factors of all n·m pairs   f1 ≤ f2 ≤ … ≤ fnm
//	without a difference, so many ranks are as likely as others: U of the test
//	c = the most that P(U < c) ≤ 0.5 % allows
//	low = fc, high = fnm+1-c
//
// so it holds 1 if and only if that test finds no difference. ok is false where so few
// runs cannot tell (below 5 and 5), or where a run is 0 or less.
func Shift(before, after []float64) (factor, low, high float64, ok bool) {
	var factors []float64
	for _, b := range before {
		for _, a := range after {
			if b <= 0 || a <= 0 {
				return 0, 0, 0, false
			}
			factors = append(factors, a/b)
		}
	}
	c := critical(len(before), len(after))
	if c == 0 {
		return Median(factors), 0, 0, false
	}
	slices.Sort(factors)
	return Median(factors), factors[c-1], factors[len(factors)-c], true
}

// critical is the largest c with P(U < c) ≤ (1-confidence)/2 for samples of n and m.
func critical(n, m int) (c int) {
	if n < 1 || m < 1 {
		return 0
	}
	p := distribution(n, m)
	for below := 0.0; c < len(p) && below+p[c] <= (1-confidence)/2; c++ {
		below += p[c]
	}
	return c
}

// distribution is that of U without a difference: p[u] for u from 0 to n·m. The largest
// of all values is one of the n, and then exceeds all m others, or one of the m:
//
//	p(n, m, u) = n/(n+m) · p(n-1, m, u-m) + m/(n+m) · p(n, m-1, u)
func distribution(n, m int) []float64 {
	previous := make([][]float64, m+1) // by the second size, for one less of the first
	for i := range n + 1 {
		row := make([][]float64, m+1)
		for j := range m + 1 {
			p := make([]float64, i*j+1)
			if i == 0 || j == 0 {
				p[0] = 1
				row[j] = p
				continue
			}
			all := float64(i + j)
			for u := range p {
				if u >= j {
					p[u] += float64(i) / all * previous[j][u-j]
				}
				if u < len(row[j-1]) {
					p[u] += float64(j) / all * row[j-1][u]
				}
			}
			row[j] = p
		}
		previous = row
	}
	return previous[m]
}
