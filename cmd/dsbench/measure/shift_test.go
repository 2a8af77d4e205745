package measure

import (
	"math"
	"math/rand/v2"
	"testing"
)

// The critical values are those of the tables for a two-sided test at 1 % (there
// the largest U that is significant, which is one less).
func TestCriticalValuesAreThoseOfTheTables(t *testing.T) {
	for _, c := range []struct{ n, m, want int }{{4, 4, 0}, {4, 5, 0}, {5, 5, 1}, {5, 10, 5}, {8, 8, 8}, {10, 10, 17}, {20, 20, 106}} {
		if got := critical(c.n, c.m); got != c.want {
			t.Errorf("%d and %d: %d instead of %d", c.n, c.m, got, c.want)
		}
		if got := critical(c.m, c.n); got != c.want {
			t.Errorf("%d and %d: %d instead of %d", c.m, c.n, got, c.want)
		}
	}
	sum := 0.0
	for _, p := range distribution(7, 9) {
		sum += p
	}
	if math.Abs(sum-1) > 1e-12 {
		t.Errorf("the probabilities add up to %v", sum)
	}
}

// Of runs without a difference at most one in a hundred is called one; of those
// that are a fifth slower, nearly all.
func TestShiftTellsNoiseFromChange(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	draw := func(scale float64) (xs []float64) {
		for range 10 {
			xs = append(xs, scale*math.Exp(0.05*r.NormFloat64()))
		}
		return xs
	}
	const trials = 2000
	found := func(scale float64) (n int) {
		for range trials {
			_, low, high, ok := Shift(draw(100), draw(100*scale))
			if !ok {
				t.Fatal("ten runs cannot tell")
			}
			if low > 1 || high < 1 {
				n++
			}
		}
		return n
	}
	if n := found(1); n > trials*15/1000 {
		t.Errorf("%d of %d that are equal differ", n, trials)
	}
	if n := found(1.2); n < trials*97/100 {
		t.Errorf("only %d of %d that differ by a fifth do", n, trials)
	}
}

func TestShiftRefuses(t *testing.T) {
	five := []float64{1, 2, 3, 4, 5}
	for _, c := range [][2][]float64{{five, five[:4]}, {five, nil}, {five, {0, 1, 2, 3, 4}}} {
		if _, _, _, ok := Shift(c[0], c[1]); ok {
			t.Errorf("%v and %v can be told", c[0], c[1])
		}
	}
	if f, low, high, ok := Shift(five, []float64{10, 20, 30, 40, 50}); !ok || f != 10 || low != 2 || high != 50 {
		t.Errorf("ten times as much is %v, from %v to %v, %v", f, low, high, ok)
	}
}
