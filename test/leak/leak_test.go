package leak

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// leakVariable tells a copy of this test binary what to leave behind.
const leakVariable = "EXNET_TEST_LEAK"

func TestMain(m *testing.M) { Main(m) }

// TestLeave leaves behind what leakVariable says, on purpose.
func TestLeave(t *testing.T) {
	switch os.Getenv(leakVariable) {
	case "goroutine":
		go func() { select {} }()
	case "descriptor":
		if err := unix.Pipe(make([]int, 2)); err != nil {
			t.Fatal(err)
		}
	case "socket":
		if _, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM, 0); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMainFindsLeaks(t *testing.T) {
	for leave, want := range map[string]string{
		"nothing":    "",
		"goroutine":  "found unexpected goroutines",
		"descriptor": "descriptors left open: 2 × pipe:",
		"socket":     "descriptors left open: 1 × socket:",
	} {
		t.Run(leave, func(t *testing.T) {
			cmd := exec.Command(os.Args[0], "-test.run=^TestLeave$")
			cmd.Env = append(os.Environ(), leakVariable+"="+leave)
			out, err := cmd.CombinedOutput()
			if (err != nil) != (want != "") || !strings.Contains(string(out), want) {
				t.Errorf("exit: %v, want output with %q, got:\n%s", err, want, out)
			}
		})
	}
}

func TestMainToleratesProfiles(t *testing.T) {
	dir := t.TempDir()
	cmd := exec.Command(os.Args[0], "-test.run=^TestLeave$", "-test.cpuprofile="+dir+"/cpu", "-test.trace="+dir+"/trace")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
