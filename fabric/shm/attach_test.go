package shm

import (
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// An attachment that fails half way gives back what it took and nothing else:
// descriptor 0 is the program's.
func TestAttachFailsHalfWay(t *testing.T) {
	before, err := os.Readlink("/proc/self/fd/0")
	if err != nil {
		t.Skip("no standard input to lose: ", err)
	}
	dir := fabricDir(t)
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	_, err = Attach(Config{Dir: dir, Node: fabric.NodeAny})
	unix.Setrlimit(unix.RLIMIT_FSIZE, &old)
	wantError(t, err, fabric.ErrMemory, "RLIMIT_FSIZE")
	if after, err := os.Readlink("/proc/self/fd/0"); after != before {
		t.Errorf("descriptor 0 was %s and is %q (%v)", before, after, err)
	}
}
