package directsockets

import (
	"sync"

	"exnet/fabric/limits"
)

// Whoever touches shared memory beyond the limit of its cgroup is killed. What a
// channel has touched it keeps until it ends (seals forbid to give it back). So slots
// and windows count from their first use, and all channels of a process may take an
// eighth of the lowest limit of its cgroups, or of the machine's memory, and not more
// than 1 GiB; EXN_DS_MEMORY sets that.
//
// Windows grow up to a half of it, new ones are used up to three quarters, and the
// rest is for slots. So many connections get small windows instead of few getting
// large ones, and who gets none writes by slots.
type lanesBudget struct {
	mu   sync.Mutex
	most uint64 // 0: not known yet
	used uint64
}

var budget lanesBudget

const (
	budgetShare = 8
	budgetMost  = 1 << 30
)

// A part of the budget, in quarters, is how far a use of memory may bring us.
type part uint64

const (
	forGrowth  part = 2
	forWindows part = 3
	forAll     part = 4
)

func (b *lanesBudget) take(n uint64, p part) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most == 0 {
		if b.most = env.memory; b.most == 0 {
			b.most = min(uint64(limits.Memory())/budgetShare, budgetMost)
		}
	}
	if b.used+n > b.most/4*uint64(p) {
		return false
	}
	b.used += n
	return true
}

func (b *lanesBudget) giveBack(n uint64) {
	b.mu.Lock()
	b.used -= n
	b.mu.Unlock()
}
