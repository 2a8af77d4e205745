package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"
)

// What cannot be written is one line that says what helps.
func TestCaptureCannotWrite(t *testing.T) {
	dir, a, b := pair(t)
	chatter(t, a, b)
	for file, want := range map[string]string{
		"/dev/full":       "write /dev/full: no space left on device; free some space there, or write to another place",
		"/no/such/x.pcap": "open /no/such/x.pcap: no such file or directory; name a file in a directory that you can write to",
	} {
		code, _, errs := call(t, plain, "capture", "--fabric", dir, "--node", "7", "-c", "1", "-w", file)
		lines := strings.Split(strings.TrimSuffix(errs, "\n"), "\n")
		if code != exitFailed || lines[len(lines)-1] != "exn-tun: "+want {
			t.Errorf("%s: exit code %d, said %q, want %q", file, code, errs, want)
		}
		if strings.Contains(errs, "frames captured") {
			t.Errorf("%s: said %q, as if there were a file", file, errs)
		}
	}
}

func TestFullStandardOutput(t *testing.T) {
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer full.Close()
	var errs bytes.Buffer
	if code := run([]string{"version"}, full, &errs); code != exitFailed || !strings.Contains(errs.String(), "free some space there") || strings.Count(errs.String(), "\n") != 1 {
		t.Errorf("exit code %d, said %q", code, &errs)
	}
}

// A bridge that cannot run takes back the directory that it made for the fabric.
func TestBridgeWithoutRoot(t *testing.T) {
	dir := newFabric(t)
	code, out, errs := call(t, noRoot, "bridge", "--fabric", dir)
	if code != exitImpossible || out != "" || !strings.Contains(errs, "run as root") || strings.Count(errs, "\n") != 1 {
		t.Errorf("exit code %d, said %q", code, errs)
	}
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it leaves the fabric directory behind: %v", err)
	}
}
