package directsockets

import (
	"sync"

	"exnet/fabric/limits"
)

// Whoever touches shared memory beyond the limit of its cgroup is killed. A lane
// that was used once keeps the pages that it touched until its channel ends
// (seals forbid to give them back), at worst all of it. So each lane counts in
// full from its first use, and all lanes of a process may take an eighth of the
// lowest limit of its cgroups, or of the machine's memory; EXN_DS_MEMORY sets that.
type lanesBudget struct {
	mu   sync.Mutex
	most uint64 // 0: not known yet
	used uint64
}

var budget lanesBudget

const budgetShare = 8

func (b *lanesBudget) take(n uint64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.most == 0 {
		if b.most = env.memory; b.most == 0 {
			b.most = uint64(limits.Memory()) / budgetShare
		}
	}
	if n > b.most-min(b.used, b.most) {
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
