package measure

import (
	"time"

	"golang.org/x/sys/unix"
)

// Rounds does n round trips and gives their Sample. Without a pause they
// follow each other and PerOp is their mean; with one, each is timed alone,
// from the end of its pause, and PerOp is their median: the pauses let other
// things run, and a mean would tell of those.
func Rounds(n int, pause time.Duration, round func() error) (Sample, error) {
	if pause == 0 {
		start := time.Now()
		for range n {
			if err := round(); err != nil {
				return Sample{}, err
			}
		}
		return Each(time.Since(start), n), nil
	}
	took := make([]float64, 0, n)
	for range n {
		ts := unix.NsecToTimespec(int64(pause))
		unix.Nanosleep(&ts, nil) // a signal makes one pause shorter, no harm
		start := time.Now()
		if err := round(); err != nil {
			return Sample{}, err
		}
		took = append(took, float64(time.Since(start)))
	}
	return Sample{PerOp: Median(took)}, nil
}
