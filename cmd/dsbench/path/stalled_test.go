package path

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/test/built"
)

// While a load runs, the victim is stopped where it is to be, and afterwards it
// is not.
func TestCrowd(t *testing.T) {
	for _, stop := range []bool{false, true} {
		p := need(t, func() (*Path, error) { return Crowd(built.Path(t, "exn-tun"), "exn0", stop) })
		for range 2 {
			end, err := p.Accompany()
			if err != nil {
				t.Fatal(err)
			}
			for stop != stopped(t, p.Daemons[victim]) { // its threads stop one by one
				time.Sleep(time.Millisecond)
			}
			if err := end(); err != nil {
				t.Error(err)
			}
			for stopped(t, p.Daemons[victim]) {
				time.Sleep(time.Millisecond)
			}
		}
	}
}

// stopped reports whether a process is, as by SIGSTOP.
func stopped(t *testing.T, pid int) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Contains(string(text), "State:\tT")
}
