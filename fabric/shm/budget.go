package shm

import (
	"fmt"
	"sync"

	"exnet/fabric"
	"exnet/fabric/limits"
)

// A budget limits the shared memory that a node may touch. Seals protect a process from truncation,
// but nothing protects it from touching shared memory beyond the limit of its cgroup: the kernel
// kills it. So we count what could be touched before we map it, both our own memory and that of
// peers.
type budget struct {
	limit int64
	mu    sync.Mutex
	used  int64
}

// newBudget takes half of the memory that the process may use, unless configured otherwise. The
// other half is for the program itself.
func newBudget(configured int64) *budget {
	if configured > 0 {
		return &budget{limit: configured}
	}
	return &budget{limit: limits.Memory() / 2}
}

// reserve takes n bytes, or fails with ErrMemory.
func (b *budget) reserve(n int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(n) > b.limit-b.used {
		return fmt.Errorf("shared memory: %d bytes wanted, %d of the budget of %d left; raise Config.Memory or the cgroup's memory.max: %w",
			n, b.limit-b.used, b.limit, fabric.ErrMemory)
	}
	b.used += int64(n)
	return nil
}

func (b *budget) release(n int) {
	b.mu.Lock()
	b.used -= int64(n)
	b.mu.Unlock()
}
