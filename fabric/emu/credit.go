package emu

import "slices"

// credits are room that a sender may use: slots of a receiver's queue, or of its own.
type credits struct {
	left int
	full bool // a caller was refused, and there has been no more room since
	tx   *transmitter
}

// take uses n credits, or reports that there are not enough.
func (c *credits) take(n int) bool {
	if i := slices.Index(c.tx.ready, c); i >= 0 {
		c.tx.ready = slices.Delete(c.tx.ready, i, i+1)
	}
	if c.left < n {
		c.full = true
		return false
	}
	c.left -= n
	return true
}

// give returns n credits and raises the interrupt of a refused sender.
func (c *credits) give(n int) {
	c.left += n
	if c.full {
		c.full = false
		c.tx.ready = append(c.tx.ready, c)
		c.tx.irq.raise()
	}
}

// A transmitter is the transmit half of a port, as its interrupt sees it.
type transmitter struct {
	irq   *interrupt
	ready []*credits // refused once and worth another try
}

// work reports whether something is worth another try, once for each time.
func (t *transmitter) work() bool {
	some := len(t.ready) > 0
	t.ready = t.ready[:0]
	return some
}
