package rawfabric

import (
	"fmt"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
)

// A memory tells the resident shared memory before and after the channel is
// used: Run(0) uses nothing, Run(n) exchanges n of everything.
type memory struct{ exchange }

func newMemory(e *end, p measure.Params) (measure.Half, error) {
	x, err := newExchange(e, p.Pause)
	return &memory{x}, err
}

func (m *memory) Run(n int) (s measure.Sample, err error) {
	if err := m.both(n); err != nil {
		return s, err
	}
	s.Resident, err = resident()
	return s, err
}

// windowSize is the window of which p.Size bytes are touched.
const windowSize = 64 << 20

// A window tells the resident shared memory before and after a PUT into a
// large window at follow: Run(0) does nothing, Run(n) n PUTs to the same place.
type window struct {
	transfer
	source fabric.NLA
}

func newWindow(e *end, p measure.Params) (measure.Half, error) {
	p.Buffers = 1
	t, err := newTransfer(e, p)
	if err != nil {
		return nil, err
	}
	if e.role == measure.Follow {
		_, _, err := e.share(windowSize, fabric.RemoteWrite)
		return &window{transfer: t}, err
	}
	m, w, err := e.share(p.Size*t.payload.Sources(), 0)
	if err != nil {
		return nil, err
	}
	t.fill(m.Bytes())
	return &window{t, w.NLA()}, nil
}

func (w *window) Run(n int) (s measure.Sample, err error) {
	for range n {
		kind := fabric.KindCompleter
		if w.role == measure.Lead {
			kind = fabric.KindRequester
			w.op = fabric.RMADescriptor{Command: fabric.Put, Mask: fabric.NotifyCompleter | fabric.NotifyRequester,
				To: w.peer.rma, Length: w.size, Local: w.source, Remote: w.peer.windows[0]}
			if err := w.post(&w.op); err != nil {
				return s, err
			}
		}
		if _, err := w.poll(kind); err != nil {
			return s, fmt.Errorf("PUT into a window of %d bytes: %w", windowSize, err)
		}
	}
	s.Resident, err = resident()
	return s, err
}
