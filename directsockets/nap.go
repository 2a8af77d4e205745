package directsockets

import "sync/atomic"

// A nap is how the call that holds a side sleeps on its lane. The sleeper begins a nap, looks
// whether there is something to do, waits for the bell if not, and always ends the nap. Whoever
// changes something wakes it. Either the nap began before the change, and is woken, or after it,
// and the look saw the change.
type nap struct {
	state atomic.Uint32
	bell  chan struct{} // holds a token for each nap that was woken, or will very soon
	heard bool          // the sleeper has taken the token
	door  int           // a doorbell that wakes the sleeper as well; 0 if none
}

const (
	awake  = 0
	asleep = 1
	woken  = 2
)

func (n *nap) begin() {
	n.heard = false
	n.state.Store(asleep) // also a fence, before the look
}

// wake never blocks: it sends one token for each nap, and the end of the last nap took its token.
// After that, the sleeper may take its doorbell away.
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
