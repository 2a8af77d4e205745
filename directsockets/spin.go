package directsockets

import (
	"runtime"
	"sync/atomic"
	"time"

	"exnet/fabric/limits"
	"exnet/internal/late"
)

// A spin is what a side has learnt about looking before sleeping: the time is
// halved after each look in vain, and is whole again after a success and at every
// 32nd try. The holder of mu uses it.
type spin struct{ halved, failed uint }

const (
	spinRetry    = 32
	spinShortest = time.Microsecond
	// spinLooks fill the time of a cache miss or two; then others may run.
	spinLooks = 64
)

// spinners of this process. Each uses a CPU up: of the procs, which is GOMAXPROCS as
// it was at the last look in vain, one is left to the rest.
var spinners, procs atomic.Int32

func init() { procs.Store(int32(runtime.GOMAXPROCS(0))) }

// time is how long to look this time.
func (s *spin) time() time.Duration {
	if env.spin == 0 || scarce() || quotaPaused() {
		return 0
	}
	if s.failed%spinRetry == 0 {
		s.halved = 0
	}
	d := env.spin >> min(s.halved, 32)
	if d < spinShortest {
		s.failed++ // so that the next one to be tried comes
		return 0
	}
	return d
}

// look spins until ready says so. stop ends it early.
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
	procs.Store(int32(runtime.GOMAXPROCS(0))) // which takes a lock of the scheduler
	s.vain()
	return false
}

func (s *spin) vain() {
	s.halved++
	s.failed++
	if quotaVain.Add(1)%quotaAsk != 0 {
		return
	}
	// The first count says nothing: it is what was before.
	if now := limits.Throttled() + 1; quotaThrottled.Swap(now) < now && quotaAsked.Swap(true) {
		quotaPause.Store(int64(time.Since(quotaEpoch) + quotaLife))
	}
}

// scarce says that less than two CPUs are ours: the peer could not run while we
// spin, or the cgroup would be throttled for it later. Quotas are changed while programs
// run, so it asks again after quotaLife.
func scarce() bool {
	now, due := time.Since(quotaEpoch), quotaDue.Load()
	if int64(now) >= due && quotaDue.CompareAndSwap(due, int64(now+quotaLife)) {
		quotaScarce.Store(limits.CPUs() < 2)
	}
	return quotaScarce.Load()
}

// quotaPaused says that a cgroup of ours was throttled of late.
func quotaPaused() bool {
	until := quotaPause.Load()
	return until != 0 && int64(time.Since(quotaEpoch)) < until
}

const (
	quotaLife = time.Second
	// quotaAsk is after how many looks in vain we ask whether our cgroups are throttled. If they were since
	// the last time, nobody looks for quotaLife.
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
