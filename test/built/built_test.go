package built

import (
	"os/exec"
	"strings"
	"testing"
)

func TestPath(t *testing.T) {
	program := Path(t, "exn-tun")
	t.Chdir(t.TempDir())
	if again := Path(t, "exn-tun"); again != program {
		t.Errorf("elsewhere it is %s, want %s", again, program)
	}
	out, err := exec.Command(program, "version").Output()
	if err != nil || !strings.HasPrefix(string(out), "exn-tun ") {
		t.Errorf("exn-tun version: %q, %v", out, err)
	}
	if path, err := find("no-such-program"); err == nil || !strings.Contains(err.Error(), "run make") {
		t.Errorf("no-such-program: %q, %v, want an error with a remedy", path, err)
	}
}
