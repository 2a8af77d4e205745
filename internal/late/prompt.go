//go:build !slowwake

package late

// Slow says whether this is a build that is late.
const Slow = false

// Wake comes before each wake-up of somebody else.
func Wake() {}

// Yield comes before each yield of the CPU.
func Yield() {}
