package measure

import (
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What a machine takes for what all that is measured here is made of: the best of some rounds
// counts, so that others at work do not.
const (
	costRounds  = 20
	costSteps   = 500
	costPatient = 200 * time.Millisecond // with a CPU that somebody else keeps
)

// SystemCall is how many nanoseconds an empty system call takes.
func SystemCall() float64 {
	return bestStep(func() bool {
		for range costSteps {
			unix.Getppid()
		}
		return true
	})
}

// bestStep is how many nanoseconds a step of the fastest round takes; 0 if there was no whole one.
func bestStep(round func() bool) float64 {
	var best time.Duration
	for range costRounds {
		start := time.Now()
		if !round() {
			break
		}
		if took := time.Since(start); best == 0 || took < best {
			best = took
		}
	}
	return float64(best) / costSteps
}

// CoreToCore is how many nanoseconds two CPUs are apart now: half a round trip between two words, each
// of which one side writes and the other looks at. (A single word that both write takes as little
// as half of that.) A virtual machine is moved while it runs, so that is not what it was a
// minute ago. 0: unknown, or they are the same.
func CoreToCore(a, b int) float64 {
	if a == b {
		return 0
	}
	var words struct {
		_     [CacheLinePair]byte
		there atomic.Uint64
		_     [CacheLinePair]byte
		back  atomic.Uint64
		_     [CacheLinePair]byte
	}
	var over atomic.Bool
	result := make(chan float64)
	// Their threads end with them, since they stay pinned.
	go func() {
		if pin(b) != nil {
			over.Store(true)
		}
		for seq := uint64(1); !over.Load(); {
			if words.there.Load() == seq {
				words.back.Store(seq)
				seq++
			}
		}
	}()
	go func() {
		if pin(a) != nil {
			over.Store(true)
		}
		end, seq := time.Now().Add(costPatient), uint64(0)
		trip := bestStep(func() bool {
			for range costSteps {
				seq++
				words.there.Store(seq)
				for looks := 0; words.back.Load() != seq; looks++ {
					if over.Load() || (looks%1024 == 1023 && time.Now().After(end)) {
						return false
					}
				}
			}
			return true
		})
		over.Store(true)
		result <- trip / 2
	}()
	return <-result
}
