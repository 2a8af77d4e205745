package directsockets

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
			b.most = memoryLimit() / budgetShare
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

// memoryLimit is the least of the machine's memory, the limits of our cgroups
// (of both versions) and RLIMIT_AS.
func memoryLimit() uint64 {
	limit := uint64(1) << 62
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		limit = uint64(si.Totalram) * uint64(si.Unit)
	}
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &r) == nil {
		limit = min(limit, r.Cur)
	}
	groups, _ := os.ReadFile("/proc/self/cgroup") // without it there is no such limit
	for line := range strings.Lines(string(groups)) {
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		base, file := "/sys/fs/cgroup", "memory.max"
		if f[1] != "" {
			if f[1] != "memory" {
				continue
			}
			base, file = "/sys/fs/cgroup/memory", "memory.limit_in_bytes"
		}
		for dir := filepath.Clean("/" + f[2]); ; dir = filepath.Dir(dir) {
			text, err := os.ReadFile(filepath.Join(base, dir, file))
			if n, perr := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64); err == nil && perr == nil {
				limit = min(limit, n)
			}
			if dir == "/" {
				break
			}
		}
	}
	return limit
}
