//go:build slowwake

package late

import (
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"
)

// Slow says whether this is a build that is late.
const Slow = true

const (
	wake      = 400 * time.Microsecond
	mostYield = 2 * time.Millisecond
)

// Wake comes before each wake-up of somebody else.
func Wake() { wait(wake) }

// Yield comes before each yield of the CPU.
func Yield() { wait(rand.N(mostYield)) }

// wait holds the thread, not the goroutine only: a timer of Go's would wake it later than that.
func wait(d time.Duration) {
	t := unix.NsecToTimespec(int64(d))
	_ = unix.Nanosleep(&t, nil) // a signal may end it early
}
