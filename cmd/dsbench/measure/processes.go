package measure

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// ProcessCPU is the processor time that a process has used, all its threads
// together. It is exact, where /proc counts in ticks.
func ProcessCPU(pid int) (time.Duration, error) {
	const sched = 2 // CPUCLOCK_SCHED: the scheduler's own clock
	var ts unix.Timespec
	if err := unix.ClockGettime(int32(^pid<<3|sched), &ts); err != nil {
		return 0, fmt.Errorf("measure: CPU time of process %d: %w", pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// A Watch tells how much of the machine others took while something was
// measured that itself sleeps, wakes and runs wherever the scheduler likes.
type Watch struct {
	pids  []int // those that are measured
	start time.Time
	busy  time.Duration // of all CPUs, as in the fields
	own   time.Duration
	ended time.Duration // of those that are no more
}

// Ended adds what processes have used that were started and have ended meanwhile:
// that is not foreign, either.
func (w *Watch) Ended(used time.Duration) { w.ended += used }

// NewWatch starts to watch. What the processes use is not foreign, nor is what
// the kernel's threads for network interrupts do for them.
func NewWatch(pids []int) (*Watch, error) {
	w := &Watch{pids: append(pids, softIRQ...), start: time.Now()}
	var err error
	if w.busy, err = busyCPU(); err == nil {
		w.own, err = w.ownCPU()
	}
	return w, err
}

// Foreign is the share of one CPU that others have used since NewWatch, and
// that the hypervisor has not given. It is exact to a few ticks of 10 ms.
func (w *Watch) Foreign() (float64, error) {
	busy, err := busyCPU()
	if err != nil {
		return 0, err
	}
	own, err := w.ownCPU()
	if err != nil {
		return 0, err
	}
	return max(0, float64(busy-w.busy-(own-w.own)-w.ended)/float64(time.Since(w.start))), nil
}

func (w *Watch) ownCPU() (sum time.Duration, err error) {
	for _, pid := range w.pids {
		d, err := ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// softIRQ are the kernel's threads that process packets when there are many.
var softIRQ = func() (pids []int) {
	names, _ := filepath.Glob("/proc/[0-9]*/comm") // the pattern is right
	for _, name := range names {
		comm, err := os.ReadFile(name)
		if err != nil || !bytes.HasPrefix(comm, []byte("ksoftirqd/")) {
			continue // it has ended, or is another
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name))); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids
}()

// busyCPU is the time that all CPUs together were not idle, or were not given
// to this machine by its hypervisor.
func busyCPU() (time.Duration, error) {
	const path = "/proc/stat"
	f, err := os.Open(path)
	if err != nil {
		return 0, fmt.Errorf("measure: %w", err)
	}
	defer f.Close()
	line, err := bufio.NewReader(f).ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("measure: %s: %w", path, err)
	}
	return parseBusy(line)
}

// parseBusy reads the first line of /proc/stat: see proc_stat(5).
func parseBusy(line string) (busy time.Duration, err error) {
	const idle, iowait, steal = 3, 4, 7
	fields := strings.Fields(line)
	if len(fields) < 2+steal || fields[0] != "cpu" {
		return 0, fmt.Errorf("measure: /proc/stat begins with %q", line)
	}
	for i, field := range fields[1 : 2+steal] {
		ticks, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("measure: /proc/stat: %w", err)
		}
		if i != idle && i != iowait {
			busy += time.Duration(ticks) * tick
		}
	}
	return busy, nil
}

// tick is the unit of /proc/stat, USER_HZ, which has been 100 on every
// architecture that Go runs on.
const tick = 10 * time.Millisecond
