package measure

import (
	"os"
	"time"
)

// A Quiet is the noise detector around runs: it makes one, and once more if it was noisy.
type Quiet struct{ yard Yardstick }

// What makes a run noisy: other programs took so much of a CPU, or the processor was
// so much slower beside it.
const (
	mostForeign = 0.1
	mostSlower  = 0.15

	// counted is how exact the time of other programs is: two ticks.
	counted = 20 * time.Millisecond
)

// Run makes a run, which says what CPU time the processes have used that it started and
// that have ended; own are those that go on beside it. noisy says that the last run was.
func (q *Quiet) Run(own func() []int, run func() (used time.Duration, err error)) (noisy bool, err error) {
	for range 2 {
		slower := q.yard.look()
		watch, err := NewWatch(append([]int{os.Getpid()}, own()...))
		if err != nil {
			return false, err
		}
		start := time.Now()
		used, err := run()
		if err != nil {
			return false, err
		}
		watch.Ended(used)
		most := mostForeign + float64(counted)/float64(time.Since(start))
		foreign, err := watch.Foreign()
		if err != nil {
			return false, err
		}
		slower = max(slower, q.yard.look())
		if noisy = foreign > most || slower > mostSlower; !noisy {
			break
		}
	}
	return noisy, nil
}
