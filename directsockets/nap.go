package directsockets

import "sync/atomic"

// A nap is how the holder of a side sleeps on its lane. It begins one, looks whether
// there is something to do, and if not waits for the bell; and ends it in any case.
// Who has changed something wakes it: the nap was begun before that, and is woken,
// or after that, and the look saw it.
type nap struct {
	state atomic.Uint32
	bell  chan struct{} // has a token for each nap that was woken, or will at once
	heard bool          // the sleeper has taken it
	door  int           // or else a doorbell that wakes it as well; 0: none
}

const (
	awake  = 0
	asleep = 1
	woken  = 2
)

func (n *nap) begin() {
	n.heard = false
	n.state.Store(asleep) // and a fence, before the look
}

// wake never blocks: one token for each nap, and the last was taken at its end. With that
// the sleeper may take its doorbell away.
func (n *nap) wake() {
	if n.state.Load() == asleep && n.state.CompareAndSwap(asleep, woken) {
		if n.door != 0 {
			ringBell(n.door)
		}
		n.bell <- struct{}{}
	}
}

func (n *nap) end() {
	if n.state.Swap(awake) == woken && !n.heard {
		<-n.bell
	}
}
