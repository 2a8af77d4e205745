package gopeer_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/test/built"
	"exnet/test/ds"
)

// Exn-tun shows a Go program as it shows those under the library, and says beforehand
// what becomes of a connection to it.
func TestSeenFromOutside(t *testing.T) {
	fabric := ds.Fabric(t)
	tun := built.Path(t, "exn-tun")
	pump := func(args ...string) *bufio.Reader {
		cmd := exec.Command(built.Path(t, "gopump"), args...)
		cmd.Env, cmd.Stderr = append(os.Environ(), "EXN_FABRIC="+fabric), t.Output()
		cmd.SysProcAttr = dieWithUs()
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
		return bufio.NewReader(out)
	}
	line, err := pump("serve", "127.0.0.1", "0").ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port := strings.TrimSpace(strings.TrimPrefix(line, "ready "))

	text, err := exec.Command(tun, "check", "--fabric", fabric, "127.0.0.1:"+port).CombinedOutput()
	if err != nil || !strings.Contains(string(text), "a busy connection takes lanes: gopump") {
		t.Errorf("check: %v: %s", err, text)
	}

	pump("pingpong", "127.0.0.1", port, "60") // seconds; it is killed before
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		text, err = exec.Command(tun, "show", "sockets").CombinedOutput()
		if err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		both := 0
		for line := range strings.Lines(string(text)) {
			if strings.Contains(line, "gopump") && strings.Contains(line, ":"+port) && strings.Contains(line, "lane") {
				both++
			}
		}
		if both == 2 {
			return
		}
		if time.Since(begin) > time.Minute {
			t.Fatalf("not shown on their lanes: %s", text)
		}
	}
}
