package measure

import (
	"encoding/json"
	"fmt"
	"math/bits"
)

// A Histogram counts times in ns, each to 0.8 %: as HdrHistogram does, by its
// highest bits. A bucket is an exponent and the seven bits behind the first;
// below 256 ns each ns is one.
//
//	ns       0 … 255   256, 258 … 510   512, 516 … 1020   …
//	bucket   0 … 255   256  … 383       384  … 511        …
//
// The zero Histogram is empty. In JSON it is [[bucket, count], …], which is also
// what the program pump prints.
type Histogram struct {
	counts [(64-7-1)<<7 + 256]uint64
	total  uint64
}

func bucket(ns uint64) int {
	shift := max(0, bits.Len64(ns)-8)
	return shift<<7 + int(ns>>shift)
}

// middle is the time that stands for a bucket.
func middle(bucket int) float64 {
	shift := max(0, bucket>>7-1)
	return float64(uint64(bucket-shift<<7)<<shift) + float64(uint64(1)<<shift-1)/2
}

// Add counts one time.
func (h *Histogram) Add(ns int64) {
	h.counts[bucket(uint64(max(0, ns)))]++
	h.total++
}

// Merge adds all of another one.
func (h *Histogram) Merge(other *Histogram) {
	for i, n := range other.counts {
		h.counts[i] += n
	}
	h.total += other.total
}

// Count is how many times were added.
func (h *Histogram) Count() uint64 { return h.total }

// Quantile is the time that a share q of all does not exceed, 0 of none.
func (h *Histogram) Quantile(q float64) float64 {
	if h.total == 0 {
		return 0
	}
	want := max(1, uint64(q*float64(h.total)+0.5))
	for i, n := range h.counts {
		if n >= want {
			return middle(i)
		}
		want -= n
	}
	return middle(len(h.counts) - 1)
}

// MarshalJSON writes the buckets that are not empty.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	pairs := [][2]uint64{}
	for i, n := range h.counts {
		if n > 0 {
			pairs = append(pairs, [2]uint64{uint64(i), n})
		}
	}
	return json.Marshal(pairs)
}

// UnmarshalJSON reads them.
func (h *Histogram) UnmarshalJSON(text []byte) error {
	var pairs [][2]uint64
	if err := json.Unmarshal(text, &pairs); err != nil {
		return err
	}
	*h = Histogram{}
	for _, p := range pairs {
		if p[0] >= uint64(len(h.counts)) || h.total+p[1] < h.total {
			return fmt.Errorf("measure: no such bucket of a histogram: %d with %d", p[0], p[1])
		}
		h.counts[p[0]] += p[1]
		h.total += p[1]
	}
	return nil
}
