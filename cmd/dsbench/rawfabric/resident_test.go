package rawfabric

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// sum adds up what is resident now.
func sum(t *testing.T) (n int64) {
	t.Helper()
	r, err := resident()
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range r {
		n += b
	}
	return n
}

// memfd makes a memfd of 10 pages, maps it twice and touches 3.
func memfd(t *testing.T, name string) (fd int) {
	t.Helper()
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	if err := unix.Ftruncate(fd, int64(10*page)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		b, err := unix.Mmap(fd, 0, 10*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Munmap(b) })
		b[0], b[4*page], b[9*page] = 1, 1, 1
	}
	return fd
}

func TestResidentCountsTouchedPagesOnce(t *testing.T) {
	before, want := sum(t), int64(3*os.Getpagesize())
	fd := memfd(t, "some-memory")
	if got := sum(t) - before; got != want {
		t.Errorf("open and mapped: %d bytes instead of %d", got, want)
	}
	unix.Close(fd)
	if got := sum(t) - before; got != want {
		t.Errorf("only mapped: %d bytes instead of %d", got, want)
	}
}

func TestResidentLeavesOutTheMeasuringCore(t *testing.T) {
	before := sum(t)
	fd := memfd(t, measure.SharedName)
	defer unix.Close(fd)
	if got := sum(t) - before; got != 0 {
		t.Errorf("%d bytes of our own were counted", got)
	}
}

func TestResidentRefusesStrangeMaps(t *testing.T) {
	if _, err := residentMapped(strings.NewReader("what is this\n")); err == nil {
		t.Error("a strange line was accepted")
	}
}

func TestResidentOfBothProcesses(t *testing.T) {
	r := measure.Result{
		Lead:   measure.Sample{Resident: map[string]int64{"mine": 1, "ours": 10}},
		Follow: measure.Sample{Resident: map[string]int64{"ours": 12, "theirs": 100}},
	}
	if got := residentOf(r); got != 113 {
		t.Errorf("%d bytes: shared memory counts once, as who sees more of it says", got)
	}
}
