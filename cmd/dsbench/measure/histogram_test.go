package measure

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// Every time is found again to 0.8 %, and buckets go up with it.
func TestBucketsAreTight(t *testing.T) {
	last := 0
	for ns := uint64(0); ns < 1<<62; ns += 1 + ns/300 {
		b := bucket(ns)
		if b < last {
			t.Fatalf("%d ns is in bucket %d, what is shorter in %d", ns, b, last)
		}
		last = b
		if got := middle(b); math.Abs(got-float64(ns)) > 0.008*float64(ns) {
			t.Fatalf("%d ns became %v", ns, got)
		}
	}
	if b := bucket(math.MaxUint64); b != len((&Histogram{}).counts)-1 {
		t.Errorf("the longest time is in bucket %d", b)
	}
}

func TestQuantiles(t *testing.T) {
	var h, other Histogram
	if h.Quantile(0.5) != 0 {
		t.Error("an empty histogram has a median")
	}
	r := rand.New(rand.NewPCG(1, 2))
	var all []float64
	for i := range 20000 {
		ns := int64(100 * math.Exp(3*r.NormFloat64()))
		all = append(all, float64(ns))
		if i%2 == 0 {
			h.Add(ns)
		} else {
			other.Add(ns)
		}
	}
	h.Merge(&other)
	slices.Sort(all)
	for _, q := range []float64{0.001, 0.5, 0.9, 0.99, 0.999, 1} {
		want := all[max(0, int(math.Round(q*float64(len(all))))-1)]
		if got := h.Quantile(q); math.Abs(got-want) > 0.01*want+1 {
			t.Errorf("%v: %v instead of %v", q, got, want)
		}
	}
	if h.Count() != 20000 {
		t.Errorf("%d times", h.Count())
	}
	text, err := json.Marshal(&h)
	if err != nil {
		t.Fatal(err)
	}
	var back Histogram
	if err := json.Unmarshal(text, &back); err != nil || back != h {
		t.Errorf("after JSON it differs (%v)", err)
	}
	for _, bad := range []string{`[[9999999,1]]`, `[[1,18446744073709551615],[2,1]]`, `{}`, `[[-1,1]]`} {
		if json.Unmarshal([]byte(bad), &back) == nil {
			t.Errorf("%s is a histogram", bad)
		}
	}
}
