package measure

import (
	"context"
	"math"
	"time"
)

// A Runner runs n operations of a contender.
type Runner interface {
	Run(ctx context.Context, n int) (Result, error)
}

// Calibrate finds how many operations take about want, starting with first.
// The runs that it makes are the warm-up. A run that is not quiet tells little,
// so the best of a few counts then.
func Calibrate(ctx context.Context, r Runner, want time.Duration, first int, quiet func(Result) bool) (int, error) {
	for n := max(1, first); ; {
		took := time.Duration(math.MaxInt64)
		for range calibrateTries {
			res, err := r.Run(ctx, n)
			if err != nil {
				return 0, err
			}
			took = min(took, max(res.Lead.Elapsed, time.Microsecond))
			if quiet(res) {
				break
			}
		}
		// A run below a quarter of want says little about a long one: the
		// first operations fault pages in. At most 100-fold at a time.
		next := max(1, int(float64(n)*min(100, float64(want)/float64(took))))
		if took >= want/4 {
			return next, nil
		}
		n = max(n+1, next)
	}
}

// calibrateTries is how often Calibrate tries to find a quiet moment.
const calibrateTries = 3

// Alternate makes pairs of runs, each a run of a with na operations and then
// one of b with nb. A pair in which quiet is false for a run is made again, as
// long as no more than as many again as were asked for are spent on that; how
// many of the pairs are disturbed nevertheless is returned. step is called
// after each pair that counts.
func Alternate(ctx context.Context, pairs int, a Runner, na int, b Runner, nb int, quiet func(Result) bool, step func()) (as, bs []Result, disturbed int, err error) {
	for spare := pairs; len(as) < pairs; {
		ra, err := a.Run(ctx, na)
		if err != nil {
			return as, bs, disturbed, err
		}
		rb, err := b.Run(ctx, nb)
		if err != nil {
			return as, bs, disturbed, err
		}
		if !quiet(ra) || !quiet(rb) {
			if spare > 0 {
				spare--
				continue
			}
			disturbed++
		}
		as, bs = append(as, ra), append(bs, rb)
		step()
	}
	return as, bs, disturbed, nil
}
