package directsockets

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// A program with wrong settings is warned once, when it makes its first connection.
func TestWrongSettingsAreToldOnce(t *testing.T) {
	if os.Getenv("EXN_DS_SPINUS") != "" { // the program
		for range 2 {
			a, b := pipe(t, Options{Off: true})
			write(t, a, "x")
			read(t, b, "x")
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "EXN_DS_SPINUS=7", "EXN_DS_BUFFER=much", "EXN_DS_MEMORY=0",
		"EXN_DS_POLICY=program * EXN_DS_SLOTS=48;", "EXN_DS_HOT=5")
	var told strings.Builder
	cmd.Stderr = &told
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %s", err, told.String())
	}
	want := fmt.Sprintf("directsockets[%d]: EXN_DS_SPINUS=7: there is no such setting, did you mean EXN_DS_SPIN_US?; exn-tun help settings lists them; "+
		"EXN_DS_BUFFER=much: write a number from 1 to 1099511627776 (1048576 holds); "+
		"EXN_DS_MEMORY=0: write a number from 1 to 4611686018427387904 (the default holds); "+
		"EXN_DS_SLOTS=48: write a power of two from 16 to 1024 (64 holds)\n", cmd.Process.Pid)
	if told.String() != want {
		t.Errorf("got  %q\nwant %q", told.String(), want)
	}
}
