package napi

import "time"

// Doorbell is a Sleeper for goroutines: an interrupt is a call of Ring.
type Doorbell struct {
	rung  chan struct{} // holds one ring, so none is lost before Sleep
	timer *time.Timer   // used only by the sleeping loop
}

var _ Sleeper = (*Doorbell)(nil)

// NewDoorbell returns a Doorbell for one Engine.
func NewDoorbell() *Doorbell {
	return &Doorbell{rung: make(chan struct{}, 1)}
}

// Ring raises the source's interrupt and wakes the loop. Any goroutine may call it.
func (d *Doorbell) Ring(s *Source) {
	s.Raise()
	d.Wake()
}

// Wake implements Sleeper.
func (d *Doorbell) Wake() {
	select {
	case d.rung <- struct{}{}:
	default:
	}
}

// Sleep implements Sleeper. It never fails.
func (d *Doorbell) Sleep(limit time.Duration) error {
	switch {
	case limit <= 0:
		select {
		case <-d.rung:
		default:
		}
		return nil
	case limit == Forever:
		<-d.rung
		return nil
	}
	if d.timer == nil {
		d.timer = time.NewTimer(limit)
	} else {
		d.timer.Reset(limit)
	}
	select {
	case <-d.rung:
		d.timer.Stop()
	case <-d.timer.C:
	}
	return nil
}
