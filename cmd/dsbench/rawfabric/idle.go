package rawfabric

import (
	"fmt"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
)

// An idle opens the channel between the nodes and then waits. Run(0) sends a
// message and a notification each way, Run(n) waits for n milliseconds.
type idle struct{ exchange }

// settling is how long the processes wait before their CPU time is looked at:
// Go's runtime calms down by and by after something was done.
const settling = 250 * time.Millisecond

func newIdle(e *end, _ measure.Params) (measure.Half, error) {
	x, err := newExchange(e, 0)
	return &idle{x}, err
}

func (h *idle) Run(n int) (s measure.Sample, err error) {
	if n == 0 {
		return s, h.both(1)
	}
	if err := h.wait(settling); err != nil {
		return s, err
	}
	start, cpu := time.Now(), measure.CPUTime()
	err = h.wait(time.Duration(n) * time.Millisecond)
	s.CPU = float64(measure.CPUTime()-cpu) / float64(time.Since(start))
	return s, err
}

// wait waits with all ports armed.
func (h *idle) wait(d time.Duration) error {
	for deadline := time.Now().Add(d); ; {
		left := time.Until(deadline)
		if left <= 0 {
			return nil
		}
		if err := h.sleep(left); err != nil {
			return err
		}
	}
}

// An exchange uses a channel in every way: messages and notified immediate
// PUTs in both directions.
type exchange struct {
	*end
	nap   time.Duration // the receiver's, before each poll, so that rings fill up
	msgs  []fabric.Message
	notes []fabric.Notification
}

func newExchange(e *end, nap time.Duration) (exchange, error) {
	m, _, err := e.share(wordsSize, fabric.RemoteWrite)
	if err != nil {
		return exchange{}, err
	}
	m.Bytes()[0] = 0 // touched now, not by the first PUT
	return exchange{e, nap, make([]fabric.Message, pollBatch), make([]fabric.Notification, pollBatch)}, nil
}

// both sends n messages and n notified PUTs each way, one way after the other.
func (x *exchange) both(n int) error {
	for _, sender := range []measure.Role{measure.Lead, measure.Follow} {
		if err := x.messages(n, x.role == sender); err != nil {
			return err
		}
		if err := x.puts(n, x.role == sender); err != nil {
			return err
		}
	}
	return nil
}

func (x *exchange) messages(n int, send bool) error {
	var payload [fabric.VELOMaxPayload]byte
	for i := 0; i < n; {
		if send {
			if err := x.end.send(payload[:]); err != nil {
				return err
			}
			i++
			continue
		}
		time.Sleep(x.nap)
		i += x.velo.Poll(x.msgs[:min(len(x.msgs), n-i)])
		if x.site.Stopped() {
			return measure.ErrStopped
		}
	}
	return nil
}

func (x *exchange) puts(n int, send bool) error {
	for i := 0; i < n; {
		if send {
			if err := x.set(0, uint64(i), fabric.NotifyCompleter); err != nil {
				return err
			}
			i++
			continue
		}
		time.Sleep(x.nap)
		got := x.rma.Poll(x.notes[:min(len(x.notes), n-i)])
		for _, k := range x.notes[:got] {
			if k.Fault != fabric.FaultNone {
				return fmt.Errorf("RMA %v failed: %v", k.Command, k.Fault)
			}
		}
		i += got
		if x.site.Stopped() {
			return measure.ErrStopped
		}
	}
	return nil
}
