package report

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A Machine is where and how a report was made. What could not be found out
// is empty.
type Machine struct {
	Time    time.Time         `json:"time"`                     // when the command started
	Command []string          `json:"command"`                  // its arguments, to repeat it
	Version string            `json:"version,omitempty"`        // revision of exnet, "+dirty" if changed
	Go      string            `json:"go"`                       // version of the compiler
	Arch    string            `json:"arch"`                     // GOARCH
	Kernel  string            `json:"kernel"`                   // uname: system and release
	CPU     string            `json:"cpu"`                      // model
	Virtual bool              `json:"virtual"`                  // a virtual machine
	CPUs    int               `json:"cpus"`                     // that this process may use
	Pinned  []int             `json:"pinned,omitempty"`         // where lead and follow ran
	Memory  int64             `json:"memory"`                   // bytes
	Caches  map[string]string `json:"caches,omitempty"`         // of the first CPU: "L2" "1024K"
	Load    float64           `json:"load"`                     // average of the last minute, at the start
	Call    float64           `json:"system_call_ns,omitempty"` // an empty one
}

// ThisMachine describes this machine and command.
func ThisMachine(command []string, pinned []int) Machine {
	m := Machine{
		Time: time.Now().UTC().Truncate(time.Second), Command: command,
		Go: runtime.Version(), Arch: runtime.GOARCH, Pinned: pinned,
		Caches: caches("/sys/devices/system/cpu/cpu0/cache"),
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		m.Version = revision(info.Settings)
	}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		m.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	}
	if cpus, err := measure.CPUs(); err == nil {
		m.CPUs = len(cpus)
	}
	var si unix.Sysinfo_t
	if unix.Sysinfo(&si) == nil {
		m.Memory = int64(si.Totalram) * int64(si.Unit)
		m.Load = float64(si.Loads[0]) / (1 << 16) // SI_LOAD_SHIFT
	}
	m.CPU, m.Virtual = cpuInfo("/proc/cpuinfo")
	m.Call = measure.SystemCall()
	return m
}

func revision(settings []debug.BuildSetting) (rev string) {
	for _, s := range settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value + rev
		case s.Key == "vcs.modified" && s.Value == "true":
			rev += "+dirty"
		}
	}
	return rev
}

// cpuInfo reads the model and the hypervisor flag of the first CPU. Not every
// architecture has them.
func cpuInfo(path string) (model string, virtual bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan() && s.Text() != ""; {
		key, value, _ := strings.Cut(s.Text(), ":")
		switch strings.TrimSpace(key) {
		case "model name":
			model = strings.TrimSpace(value)
		case "flags":
			virtual = strings.Contains(value+" ", " hypervisor ")
		}
	}
	return model, virtual
}

// caches reads the sizes of the data caches below a cpuN/cache directory.
func caches(dir string) map[string]string {
	out := map[string]string{}
	indexes, _ := filepath.Glob(dir + "/index*") // the pattern is right
	for _, index := range indexes {
		read := func(name string) string {
			b, _ := os.ReadFile(filepath.Join(index, name)) // absent is empty
			return strings.TrimSpace(string(b))
		}
		if level, size := read("level"), read("size"); read("type") != "Instruction" && size != "" {
			out["L"+level] = size
		}
	}
	return out
}

// String is the line above a table.
func (m Machine) String() string {
	parts := []string{m.CPU}
	if m.CPU == "" {
		parts[0] = m.Arch
	}
	cpus := strconv.Itoa(m.CPUs) + " CPUs"
	if m.Virtual {
		cpus += " of a virtual machine"
	}
	parts = append(parts, cpus)
	if len(m.Pinned) > 0 {
		parts = append(parts, "pinned to "+measure.FormatCPUs(m.Pinned))
	}
	parts = append(parts, m.Kernel, m.Go, fmt.Sprintf("load %.2f", m.Load))
	if m.Call > 0 {
		parts = append(parts, "a system call "+Nanoseconds.Format(m.Call))
	}
	return strings.Join(parts, " · ")
}
