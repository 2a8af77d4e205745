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

// A Disturbance is what was seen beside a run.
type Disturbance struct {
	Foreign float64 // CPUs that other programs took, on average, or that the hypervisor did not give
	Slower  float64 // how much slower the processor was than at best: 0.1 for 10 %

	most float64 // of Foreign
}

// Noisy says that the run tells more of the disturbance than of what was measured.
func (d Disturbance) Noisy() bool { return d.Foreign > d.most || d.Slower > mostSlower }

// Run makes a run, which says what CPU time the processes have used that it started and
// that have ended; own are those that go on beside it. noisy says that the last run was.
func (q *Quiet) Run(own func() []int, run func() (used time.Duration, err error)) (noisy bool, err error) {
	for range 2 {
		d, err := q.Once(own(), run)
		if err != nil {
			return false, err
		}
		if noisy = d.Noisy(); !noisy {
			break
		}
	}
	return noisy, nil
}

// Once makes one run and says what disturbed it.
func (q *Quiet) Once(own []int, run func() (used time.Duration, err error)) (d Disturbance, err error) {
	d.Slower = q.yard.look()
	watch, err := NewWatch(append([]int{os.Getpid()}, own...))
	if err != nil {
		return d, err
	}
	start := time.Now()
	used, err := run()
	if err != nil {
		return d, err
	}
	watch.Ended(used)
	d.most = mostForeign + float64(counted)/float64(time.Since(start))
	if d.Foreign, err = watch.Foreign(); err != nil {
		return d, err
	}
	d.Slower = max(d.Slower, q.yard.look())
	return d, nil
}
