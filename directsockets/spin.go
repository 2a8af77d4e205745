package directsockets

import (
	"runtime"
	"sync/atomic"
	"time"

	"exnet/fabric/limits"
	"exnet/internal/late"
)

// A spin is what a side has learnt about spinning before it sleeps. The time is halved after each
// spin in vain, and restored after a success and at every 32nd try. The holder of mu uses it.
type spin struct{ halved, failed uint }

const (
	spinRetry    = 32
	spinShortest = time.Microsecond
	// spinLooks is the number of looks that fill the time of a cache miss or two. After them
	// other goroutines may run.
	spinLooks = 64
)

// spinners counts the calls of this process that spin; each uses up a CPU. procs is GOMAXPROCS as
// of the last spin in vain. One of these CPUs is left to the rest of the program.
var spinners, procs atomic.Int32

func init() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// time returns how long to spin this time.
func (s *spin) time() time.Duration {
	if env.spin == 0 || scarce() || quotaPaused() {
		return 0
	}
	if s.failed%spinRetry == 0 {
		s.halved = 0
	}
	d := env.spin >> min(s.halved, 32)
	if d < spinShortest {
		s.failed++ // so that the next retry comes
		return 0
	}
	return d
}

// look spins until ready returns true, and reports whether it did. stop ends it early.
func (s *spin) look(ch *channel, ready, stop func() bool) bool {
	d := s.time()
	if d == 0 {
		return false
	}
	defer spinners.Add(-1)
	if spinners.Add(1) >= procs.Load() {
		return false
	}
	if s.failed > 0 && ch.near() {
		s.vain()
		return false
	}
	var end time.Time
	for {
		for range spinLooks {
			if ready() {
				*s = spin{}
				return true
			}
		}
		now := time.Now()
		if end.IsZero() {
			end = now.Add(d)
		}
		if now.After(end) || stop() {
			break
		}
		late.Yield()
		runtime.Gosched()
	}
	procs.Store(int32(runtime.GOMAXPROCS(0))) // here, because it takes a lock of the scheduler
	s.vain()
	return false
}

func (s *spin) vain() {
	s.halved++
	s.failed++
	if quotaVain.Add(1)%quotaAsk != 0 {
		return
	}
	// The first count means nothing: it is from before.
	if now := limits.Throttled() + 1; quotaThrottled.Swap(now) < now && quotaAsked.Swap(true) {
		quotaPause.Store(int64(time.Since(quotaEpoch) + quotaLife))
	}
}

// scarce reports whether we have less than two CPUs. Then the peer could not run while we spin, or
// the cgroup would be throttled for it later. Quotas change while programs run, so it asks again
// after quotaLife.
func scarce() bool {
	now, due := time.Since(quotaEpoch), quotaDue.Load()
	if int64(now) >= due && quotaDue.CompareAndSwap(due, int64(now+quotaLife)) {
		quotaScarce.Store(limits.CPUs() < 2)
	}
	return quotaScarce.Load()
}

// quotaPaused reports whether a cgroup of ours was throttled recently.
func quotaPaused() bool {
	until := quotaPause.Load()
	return until != 0 && int64(time.Since(quotaEpoch)) < until
}

const (
	quotaLife = time.Second
	// After quotaAsk spins in vain we ask whether our cgroups were throttled. If they were
	// since the last time, nobody spins for quotaLife.
	quotaAsk = 64
)

var (
	quotaEpoch     = time.Now()
	quotaDue       atomic.Int64 // since quotaEpoch
	quotaScarce    atomic.Bool
	quotaVain      atomic.Uint32
	quotaThrottled atomic.Uint64
	quotaAsked     atomic.Bool
	quotaPause     atomic.Int64 // until then, since quotaEpoch
)
