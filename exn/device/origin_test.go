package device

import (
	"errors"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The kernel counts packets by the sending CPU, read or not, and packets arrive whole.
func TestOrigins(t *testing.T) {
	s := newStation(t, Config{Name: "exn0"})
	o, err := s.Origins()
	if errors.Is(err, unix.EPERM) {
		t.Skipf("the kernel does not let us load a BPF program, as in a container: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	defer o.Close()
	if o.CPUs() < runtime.NumCPU() {
		t.Errorf("%d CPUs, of which we may use %d", o.CPUs(), runtime.NumCPU())
	}
	packet := make([]byte, 2000)
	for {
		if _, _, err := s.read(packet); err == ErrEmpty {
			break // no solicitations any more
		}
	}
	runtime.LockOSThread()
	var mine unix.CPUSet
	if err := unix.SchedGetaffinity(0, &mine); err != nil {
		t.Fatal(err)
	}
	defer unix.SchedSetaffinity(0, &mine)
	for cpu := range o.CPUs() {
		if !mine.IsSet(cpu) {
			continue
		}
		var one unix.CPUSet
		one.Set(cpu)
		if err := unix.SchedSetaffinity(0, &one); err != nil {
			t.Fatal(err)
		}
		before := counts(o)
		const n = TxQueueLen + 10 // more than the interface's queue holds
		for range n {
			if _, err := s.socket.Write(make([]byte, 1000)); err != nil {
				t.Fatal(err)
			}
		}
		for c, now := range counts(o) {
			if got := now - before[c]; c == cpu && got < n || got > 20 && (c != cpu || got > n+20) {
				// the kernel's own solicitations
				t.Errorf("%d packets sent on CPU %d: %d counted on CPU %d", n, cpu, got, c)
			}
		}
		if got, _ := s.next(t, packet); got != 1028 {
			t.Errorf("%d bytes arrived of 1028", got)
		}
		for {
			if _, _, err := s.read(packet); err == ErrEmpty {
				break
			}
		}
	}
}

func counts(o *Origins) (all []uint64) {
	for c := range o.CPUs() {
		all = append(all, o.Count(c))
	}
	return all
}
