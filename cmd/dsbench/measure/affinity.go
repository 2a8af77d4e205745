package measure

import (
	"fmt"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// CPUs lists the processors that this process may run on.
func CPUs() ([]int, error) {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil, fmt.Errorf("measure: ask for the usable CPUs: %w", err)
	}
	var cpus []int
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// FormatCPUs prints a list of processors as "0,1".
func FormatCPUs(cpus []int) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(cpus), " ", ","), "[]")
}

// AnyCPU leaves a peer process where the scheduler puts it.
const AnyCPU = -1

// pin locks the goroutine to its thread and the thread to a processor. Other
// threads of the process stay free: Go starts them from a thread of its own
// once one is locked.
func pin(cpu int) error {
	runtime.LockOSThread()
	if cpu == AnyCPU {
		return nil
	}
	var set unix.CPUSet
	set.Set(cpu)
	if err := unix.SchedSetaffinity(0, &set); err != nil {
		return fmt.Errorf("measure: pin to CPU %d: %w", cpu, err)
	}
	return nil
}
