package report

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// terminal makes a pair of a terminal's two ends.
func terminal(t *testing.T) (user, program *os.File) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs terminals: %v", err)
	}
	user = os.NewFile(uintptr(fd), "ptmx")
	t.Cleanup(func() { user.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("needs /dev/pts: %v", err)
	}
	t.Cleanup(func() { program.Close() })
	return user, program
}

// On a terminal progress is one line that is written over, and in the end is gone.
func TestProgressOnATerminal(t *testing.T) {
	user, program := terminal(t)
	p := NewLines(program, time.Minute)
	p.About("redis")
	p.Doing("run 1")
	p.Done(30 * time.Second)
	p.Doing("run 2")
	p.End()
	program.WriteString("|")
	var said strings.Builder
	for buf := make([]byte, 256); !strings.Contains(said.String(), "|"); {
		n, err := user.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		said.Write(buf[:n])
	}
	text := said.String()
	if strings.Contains(text, "\n") || strings.Count(text, "\r\x1b[K") != 4 || !strings.Contains(text, "  0 %  redis: run 1") || !strings.Contains(text, " 50 %  redis: run 2") || !strings.HasSuffix(text, "\r\x1b[K|") {
		t.Errorf("the line is not written over and taken away: %q", text)
	}
}

// Elsewhere it is lines, one for each step.
func TestProgressInLines(t *testing.T) {
	var b strings.Builder
	p := NewLines(&b, time.Minute)
	p.About("redis")
	p.Doing("run 1")
	p.Done(time.Second)
	p.Doing("run 1")
	p.Doing("run 2")
	p.End()
	if want := "dsbench: redis: run 1\ndsbench: redis: run 2\n"; b.String() != want {
		t.Errorf("%q instead of %q", b.String(), want)
	}
}
