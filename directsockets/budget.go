package directsockets

import (
	"sync"

	"exnet/fabric/limits"
)

// A lanesBudget limits the shared memory that the lanes of this process use. The kernel kills a
// process that touches shared memory beyond the limit of its cgroup. A channel keeps what it has
// touched until it ends, since seals forbid giving pages back. So slots and windows count from
// their first use. All channels of a process together may take an eighth of the machine's memory or
// of the lowest limit of its cgroups, and at most 1 GiB; EXN_DS_MEMORY overrides that.
//
// Windows grow until half of the budget is used, new windows start until three quarters are used,
// and the rest is for slots. So many connections get small windows instead of a few getting large
// ones, and a connection without a window writes through slots.
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

// A part says how much of the budget, in quarters, may be in use after a request.
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
