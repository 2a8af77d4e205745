package directsockets

import (
	"slices"
	"time"
)

// The night watch of a channel is for connections on which the program makes no
// call, such as the idle ones of a pool. A peer that returns to TCP needs an answer
// from them within a second (ext-ds.md: go_back, and SWITCH to be taken). It has a
// waiter of its own, which is in both masks for good and always armed, so the next
// post of the peer on any lane rings; then all connections are looked at, and it is
// armed again after a while. So it costs a busy channel a few rings in a second,
// and an idle one nothing.

// nightPause is between two rings: several fit into the peer's patience.
const nightPause = 100 * time.Millisecond

func (ch *channel) watchNight() {
	defer ch.release()
	ch.night.raw.Read(func(uintptr) bool {
		time.Sleep(nightPause)
		if ch.live.Load() != alive {
			return true
		}
		ch.own.Arm(nightWaiter)
		ch.heed() // the second look
		return false
	})
}

// heed answers the peer on all connections that no call is using.
func (ch *channel) heed() {
	ch.mu.Lock()
	all := slices.Clone(ch.engaged)
	ch.mu.Unlock()
	for _, w := range all {
		c := w.Value()
		if c == nil {
			continue
		}
		// Who holds a lock is in a call, and looks by itself.
		if c.rx.mu.TryLock() {
			if c.engaged() {
				c.turn()
			}
			c.rx.mu.Unlock()
		}
		if c.tx.mu.TryLock() {
			if c.engaged() && c.out.mode.Load() == onLane && c.peer.GoBack.Load() != 0 {
				c.turnTx()
			}
			c.tx.mu.Unlock()
		}
	}
}
