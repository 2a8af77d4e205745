package shm

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A budget bounds the shared memory that a node may come to touch. Seals
// protect from truncation, but nothing protects a process that touches shared
// memory beyond the limit of its cgroup: it is killed. So what could be
// touched is counted before it is mapped, our own memory and that of peers.
type budget struct {
	limit int64
	mu    sync.Mutex
	used  int64
}

// newBudget takes half of what the process may use unless told otherwise: the
// other half is the program's own.
func newBudget(configured int64) *budget {
	if configured > 0 {
		return &budget{limit: configured}
	}
	return &budget{limit: memoryLimit() / 2}
}

// reserve takes n bytes or fails with ErrMemory.
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

// memoryLimit is the least of the machine's memory, the limits of our cgroups
// and RLIMIT_AS, in bytes.
func memoryLimit() int64 {
	limit := int64(1) << 62
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		limit = min(limit, int64(si.Totalram)*int64(si.Unit))
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &r) == nil && r.Cur < uint64(limit) {
		limit = int64(r.Cur)
	}
	groups, _ := os.ReadFile("/proc/self/cgroup")
	return min(limit, cgroupLimit("/sys/fs/cgroup", string(groups)))
}

// cgroupLimit reads the lowest memory limit on the way from our cgroup to the
// root, for both versions of the interface.
func cgroupLimit(root, groups string) int64 {
	limit := int64(1) << 62
	for line := range strings.Lines(groups) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		base, file := root, "memory.max"
		if f[1] != "" {
			if !strings.Contains(","+f[1]+",", ",memory,") {
				continue
			}
			base, file = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		}
		for dir := filepath.Clean("/" + f[2]); ; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(base, dir, file))
			if n, perr := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64); err == nil && perr == nil {
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
