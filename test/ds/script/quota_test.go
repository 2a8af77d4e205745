package script_test

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/ds"
)

// Who has less than two CPUs by the quota of its cgroup (version 2) or of one above, or is being
// throttled, does not spin, also if it began to be so while it ran. The cgroup is made of plain
// files over /sys/fs/cgroup: the CPU controller belongs to version 1 on many machines. Package
// machine has a real one.
func TestQuotaEndsSpinning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount over /sys/fs/cgroup in a namespace of its own")
	}
	program := ds.Build(t, "spin", []string{"-I", ds.Headers()}, "spin.c", ds.Object(t))
	const calm, throttled = "nr_periods 9\nnr_throttled 4\n", "nr_periods 9\nnr_throttled 5\n"
	const none, two, less = "max 100000\n", "200000 100000\n", "199999 100000\n"
	for _, c := range []struct {
		name, max, path string
		spins           bool
		file, text      string // written then
		after           bool   // spins, from some time on
	}{
		{"no quota", none, "/slice/unit", true, "", "", true},
		{"two CPUs", two, "/slice/unit", true, "", "", true},
		{"less than two", less, "/slice/unit", false, "", "", false},
		{"throttled", none, "/slice/unit", true, "slice/unit/cpu.stat", throttled, false},
		{"throttled above", none, "/slice/unit", true, "slice/cpu.stat", throttled, false},
		{"set later", none, "/slice/unit", true, "slice/cpu.max", less, false},
		{"raised later", less, "/slice/unit", false, "slice/cpu.max", two, true},
		{"long path", less, "/slice/unit" + strings.Repeat("/"+strings.Repeat("n", 200), 4), false, "", "", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.MkdirAll(filepath.Join(dir, "slice", "unit"), 0o755); err != nil {
				t.Fatal(err)
			}
			write := func(name, text string) {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			write("slice/cpu.max", c.max) // a parent's counts, too
			write("slice/cpu.stat", calm)
			write("slice/unit/cpu.max", none)
			write("slice/unit/cpu.stat", calm)
			write("cgroup", "1:cpu:/\n0::"+c.path+"\n")
			cmd := exec.Command("unshare", "--mount", "sh", "-c",
				`mount --bind "$1/cgroup" /proc/$$/cgroup && mount --bind "$1" /sys/fs/cgroup && exec "$2"`, "sh", dir, program)
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			cmd.Stderr = os.Stderr
			in, errIn := cmd.StdinPipe()
			out, errOut := cmd.StdoutPipe()
			if errIn != nil || errOut != nil {
				t.Fatal(errIn, errOut)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer cmd.Wait()
			defer in.Close()
			answers := bufio.NewReader(out)
			spins := func() bool {
				text, err := answers.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				return strings.TrimSpace(text) != "0"
			}
			if got := spins(); got != c.spins {
				t.Fatalf("spins: %v", got)
			}
			if c.file != "" {
				write(c.file, c.text)
			}
			const patience = 30 * time.Second // a quota is looked at each second
			for begin := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				fmt.Fprintln(in)
				got := spins()
				if got == c.after {
					return
				}
				if time.Since(begin) > patience {
					t.Fatalf("afterwards spins: %v", got)
				}
			}
		})
	}
}
