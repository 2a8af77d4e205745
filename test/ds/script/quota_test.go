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

	"exnet/test/ds"
)

// Who has less than two CPUs by the quota of its cgroup (version 2), or is being
// throttled, does not spin. The cgroup is made of plain files over /sys/fs/cgroup: the CPU
// controller belongs to version 1 on many machines.
func TestQuotaEndsSpinning(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to mount over /sys/fs/cgroup in a namespace of its own")
	}
	program := ds.Build(t, "spin", []string{"-I", ds.Headers()}, append([]string{"spin.c"}, ds.Sources(t)...)...)
	const calm, throttled = "nr_periods 9\nnr_throttled 4\n", "nr_periods 9\nnr_throttled 5\n"
	for _, c := range []struct {
		name, max string
		stats     []string // cpu.stat before each answer
		spins     []bool
	}{
		{"no quota", "max 100000", []string{calm, calm}, []bool{true, true}},
		{"two CPUs", "200000 100000", []string{calm, calm}, []bool{true, true}},
		{"less than two", "199999 100000", []string{calm}, []bool{false}},
		{"throttled", "max 100000", []string{calm, throttled}, []bool{true, false}},
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
			write("slice/cpu.max", c.max+"\n") // a parent's counts, too
			write("slice/unit/cpu.max", "max 100000\n")
			write("slice/unit/cpu.stat", c.stats[0])
			write("cgroup", "1:cpu:/\n0::/slice/unit\n")
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
			for i, want := range c.spins {
				if i > 0 {
					write("slice/unit/cpu.stat", c.stats[i])
					fmt.Fprintln(in)
				}
				text, err := answers.ReadString('\n')
				if err != nil {
					t.Fatalf("answer %d: %v", i, err)
				}
				if spins := strings.TrimSpace(text) != "0"; spins != want {
					t.Errorf("answer %d: spins for %s µs", i, strings.TrimSpace(text))
				}
			}
		})
	}
}
