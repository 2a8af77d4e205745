package directsockets

import (
	"slices"
	"time"
)

// The night watch of a channel serves connections on which the program makes no call, such as the
// idle ones of a pool. A peer that returns to TCP needs an answer from them within a second
// (ext-ds.md: go_back, and SWITCH to be taken). The night watch has its own waiter, which is always
// in both masks and always armed. So the peer's next post on any lane rings its doorbell. Then it
// looks at all connections, and arms the waiter again after a pause. A busy channel costs a few
// rings a second, and an idle one nothing.

// nightPause is the time between two rings. Several fit into the peer's patience.
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
		// If the lock is held, a call is in progress and looks by itself.
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
