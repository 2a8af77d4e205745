package exn

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric/shm"
	"exnet/napi"
)

// fdDevice is a device with a descriptor to poll.
type fdDevice struct {
	fakeDevice
	fd int
}

func (d *fdDevice) FD() int { return d.fd }

// newPolled makes a sleeper on a fabric and a device that can be polled. ring makes the device
// readable.
func newPolled(t *testing.T) (s *pollSleeper, ring func()) {
	t.Helper()
	node, err := shm.Attach(shm.Config{Dir: t.TempDir() + "/fabric", Node: 1})
	if err != nil {
		t.Fatal(err)
	}
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_NONBLOCK|unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	engine, err := napi.New(napi.Config{})
	if err != nil {
		t.Fatal(err)
	}
	source := func(l napi.Line) *napi.Source {
		s, err := engine.Add(napi.Spec{Name: "x", Poller: poll(func(int) napi.Result { return napi.Result{} }), Line: l})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	var lines []*fabricLine
	for range 2 {
		irq, err := node.NewInterrupt()
		if err != nil {
			t.Fatal(err)
		}
		l := &fabricLine{irq: irq}
		l.source = source(l)
		lines = append(lines, l)
	}
	dev := &deviceLine{more: func() bool { return false }}
	dev.source = source(dev)
	sl, err := newSleeper(&fdDevice{fd: pipe[0]}, dev, lines)
	if err != nil {
		t.Fatal(err)
	}
	s = sl.(*pollSleeper)
	t.Cleanup(func() {
		s.close()
		for _, l := range lines {
			_ = l.irq.Close()
		}
		_ = node.Close()
		unix.Close(pipe[0])
		unix.Close(pipe[1])
	})
	return s, func() { _, _ = unix.Write(pipe[1], []byte{1}) }
}

func (s *pollSleeper) armLines() {
	s.device.Arm()
	for _, l := range s.lines {
		l.Arm()
	}
}

// A sleep ends by a wake-up from any goroutine, by time, or by the device if its packets are
// wanted.
func TestPollSleeper(t *testing.T) {
	s, ring := newPolled(t)
	s.armLines()
	ring()
	if err := s.sleep(napi.Forever, true); err != nil { // would hang without a wake-up
		t.Fatal(err)
	}
	start := time.Now()
	if err := s.sleep(3*time.Millisecond, false); err != nil || time.Since(start) < 3*time.Millisecond {
		t.Errorf("slept %v: %v", time.Since(start), err)
	}
	go s.wake()
	if err := s.sleep(napi.Forever, false); err != nil {
		t.Fatal(err)
	}
	s.wake() // before the sleep: it counts for the next one
	s.wake()
	if err := s.sleep(napi.Forever, false); err != nil {
		t.Fatal(err)
	}
	start = time.Now()
	if err := s.sleep(time.Millisecond, false); err != nil || time.Since(start) < time.Millisecond {
		t.Errorf("a wake-up counted twice: slept %v, %v", time.Since(start), err)
	}
}

// Sleeping allocates nothing.
func TestAllocSleep(t *testing.T) {
	s, ring := newPolled(t)
	ring()
	for _, d := range []time.Duration{0, 10 * time.Microsecond} {
		if per := testing.AllocsPerRun(100, func() {
			s.armLines()
			_ = s.sleep(d, false)
		}); per > 0 {
			t.Errorf("%v allocations in a sleep of %v", per, d)
		}
	}
}
