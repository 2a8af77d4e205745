package bare

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

// A wake bounces the count 1 between two eventfds.
type wake struct {
	pair
	mine, theirs int
	pause        time.Duration
	buf          [8]byte
}

func newWake(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	w := &wake{pair: pair{role, site}, mine: site.LeadBell, theirs: site.FollowBell, pause: p.Pause}
	if role == measure.Follow {
		w.mine, w.theirs = w.theirs, w.mine
	}
	site.OnStop(func() { unix.Write(w.mine, []byte{1, 0, 0, 0, 0, 0, 0, 0}) })
	return w, nil
}

func (w *wake) Run(n int) (measure.Sample, error) {
	if w.role == measure.Lead {
		return measure.Rounds(n, w.pause, func() error {
			if err := w.ring(); err != nil {
				return err
			}
			return w.sleep()
		})
	}
	for range n {
		if err := w.sleep(); err != nil {
			return measure.Sample{}, err
		}
		if err := w.ring(); err != nil {
			return measure.Sample{}, err
		}
	}
	return measure.Sample{}, nil
}

func (w *wake) ring() error {
	w.buf = [8]byte{1}
	if _, err := unix.Write(w.theirs, w.buf[:]); err != nil {
		return fmt.Errorf("bare wake: ring: %w", err)
	}
	return nil
}

// sleep waits for exactly one ring.
func (w *wake) sleep() error {
	for {
		_, err := unix.Read(w.mine, w.buf[:])
		if w.site.Stopped() {
			return measure.ErrStopped
		}
		if err == unix.EINTR {
			continue
		}
		if err == nil && w.buf != [8]byte{1} {
			return fmt.Errorf("bare wake: %d rings came where one was due", w.buf[0])
		}
		if err != nil {
			return fmt.Errorf("bare wake: sleep: %w", err)
		}
		return nil
	}
}
