package exn

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/device"
	"exnet/fabric"
	"exnet/internal/late"
	"exnet/napi"
)

// A line is the interrupt of a source. Arm only notes that the interrupt is wanted. The cost of
// arming (a fence and a check of every ring, or an entry in a poll set) is paid just before the
// loop really sleeps. That is rare, since the busy-poll window avoids most sleeps.
type line struct {
	source *napi.Source
	armed  bool
}

// Mask implements napi.Line.
func (l *line) Mask() { l.armed = false }

// Arm implements napi.Line. The sleeper checks for work once more.
func (l *line) Arm() bool {
	l.armed = true
	return true
}

// A deviceLine is the line of the device. While EXT-Eth has no room, packets wait in the kernel;
// more reports when there is room again.
type deviceLine struct {
	line
	more func() bool
}

// Arm implements napi.Line.
func (l *deviceLine) Arm() bool { return !l.more() && l.line.Arm() }

// A sleeper waits for the interrupts of the armed lines:
//
//	arm each fabric interrupt, which looks again ── work: raise, do not sleep
//	sleep until one of them, the device, a wake-up or the time
//	mask them, raise the sources of those that fired
type sleeper interface {
	// sleep waits. device says whether packets of the device are wanted.
	sleep(d time.Duration, device bool) error
	wake()
	close()
}

func newSleeper(dev device.Device, l *deviceLine, lines []*fabricLine) (sleeper, error) {
	all := dev.FD() >= 0
	for _, f := range lines {
		all = all && f.irq.FD() >= 0
	}
	if all {
		return newPollSleeper(dev, l, lines)
	}
	if _, ok := dev.(device.Notifier); !ok {
		return nil, fmt.Errorf("%w: %s has a descriptor and the fabric has none: they cannot be waited for together", ErrConfig, dev.Name())
	}
	return newWaitSleeper(dev, l, lines), nil
}

// A fabricLine is the line of one half of the fabric's work, VELO or RMA.
type fabricLine struct {
	line
	irq fabric.Interrupt
	on  bool // armed for the present sleep
}

// armAll arms the interrupts of the armed lines. If there is work already, it arms none, raises the
// sources, and returns false.
func armAll(lines []*fabricLine) bool {
	quiet := true
	for _, l := range lines {
		if !l.armed {
			continue
		}
		if l.on = l.irq.Arm(); !l.on {
			l.source.Raise()
			quiet = false
		}
	}
	if !quiet {
		for _, l := range lines {
			if l.on {
				l.irq.Mask()
				l.on = false
			}
		}
	}
	return quiet
}

// A pollSleeper sleeps in ppoll(2), on the thread of the loop.
type pollSleeper struct {
	device *deviceLine
	lines  []*fabricLine
	wakeFD int
	fds    []unix.PollFd // the wake-up, the device, the lines
}

func newPollSleeper(dev device.Device, l *deviceLine, lines []*fabricLine) (*pollSleeper, error) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("exn: eventfd of the loop: %w", err)
	}
	s := &pollSleeper{device: l, lines: lines, wakeFD: fd}
	s.fds = append(s.fds, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN}, unix.PollFd{Fd: int32(dev.FD()), Events: unix.POLLIN})
	for _, l := range lines {
		s.fds = append(s.fds, unix.PollFd{Fd: int32(l.irq.FD()), Events: unix.POLLIN})
	}
	return s, nil
}

// want includes a descriptor in the next poll or leaves it out: poll(2) ignores negative ones.
func want(p *unix.PollFd, yes bool) {
	if p.Revents = 0; yes != (p.Fd >= 0) {
		p.Fd = ^p.Fd
	}
}

func (s *pollSleeper) sleep(d time.Duration, device bool) error {
	if !armAll(s.lines) {
		d = 0
	}
	want(&s.fds[1], device && s.device.armed)
	for k, l := range s.lines {
		want(&s.fds[2+k], l.on)
	}
	var limit *unix.Timespec
	if d != napi.Forever {
		t := unix.NsecToTimespec(int64(max(0, d)))
		limit = &t
	}
	n, err := unix.Ppoll(s.fds, limit, nil)
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("ppoll: %w", err)
	}
	if n <= 0 {
		for k := range s.fds {
			s.fds[k].Revents = 0
		}
	}
	if s.fds[0].Revents != 0 {
		var count [8]byte
		_, _ = unix.Read(s.wakeFD, count[:])
	}
	if s.fds[1].Revents != 0 {
		s.device.source.Raise()
	}
	for k, l := range s.lines {
		if !l.on {
			continue
		}
		if l.on = false; s.fds[2+k].Revents != 0 {
			l.irq.Wait(0) // consumes the ring and masks the interrupt
			l.source.Raise()
		} else {
			l.irq.Mask()
		}
	}
	return nil
}

func (s *pollSleeper) wake() {
	one := [8]byte{1}
	late.Wake()
	_, _ = unix.Write(s.wakeFD, one[:]) // EAGAIN: the counter is full, so the loop will wake anyway
}

func (s *pollSleeper) close() { unix.Close(s.wakeFD) }

// A waitSleeper serves fabrics and devices without descriptors. A goroutine for each interrupt
// waits for it while the loop sleeps.
type waitSleeper struct {
	device *deviceLine
	lines  []*fabricLine
	rung   chan struct{} // holds one wake-up
	ready  chan struct{} // holds one notice from the device
	fired  chan int      // the line whose wait ended
	start  []chan struct{}
}

func newWaitSleeper(dev device.Device, l *deviceLine, lines []*fabricLine) *waitSleeper {
	s := &waitSleeper{device: l, lines: lines, rung: make(chan struct{}, 1), ready: make(chan struct{}, 1), fired: make(chan int)}
	dev.(device.Notifier).Notify(func() { signal(s.ready) })
	for k, l := range lines {
		start := make(chan struct{})
		s.start = append(s.start, start)
		go func() {
			for range start {
				l.irq.Wait(-1)
				s.fired <- k
			}
		}()
	}
	return s
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

func (s *waitSleeper) sleep(d time.Duration, device bool) error {
	if !armAll(s.lines) {
		d = 0
	}
	waiting := 0
	for k, l := range s.lines {
		if l.on {
			s.start[k] <- struct{}{}
			waiting++
		}
	}
	var over <-chan time.Time
	if d != napi.Forever {
		t := time.NewTimer(d)
		defer t.Stop()
		over = t.C
	}
	var ready chan struct{}
	if device && s.device.armed {
		ready = s.ready
	}
	first := -1
	select {
	case <-s.rung:
	case <-over:
	case <-ready:
		s.device.source.Raise()
	case first = <-s.fired:
		waiting--
		s.lines[first].source.Raise()
	}
	for k, l := range s.lines {
		if l.on && k != first {
			l.irq.Wake()
		}
		l.on = false
	}
	for range waiting {
		<-s.fired // if it really fired, arming it next time will show the work
	}
	return nil
}

func (s *waitSleeper) wake() { signal(s.rung) }

func (s *waitSleeper) close() {
	for _, start := range s.start {
		close(start)
	}
}
