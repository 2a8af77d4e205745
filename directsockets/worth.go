package directsockets

import (
	"sync/atomic"

	"exnet/directsockets/status"
)

// A lane costs as much as some ten round trips by TCP, more where those are quick,
// so a connection that ends soon after it was upgraded had better stayed there. What
// is coming nobody knows, but most services have a habit: each end of a connection
// that was considered for a lane notes, when it ends, whether it was long enough to be
// worth one, in a counter of the server's port, which processes share where there is
// a board. From worthBrief on most are short, and the next are considered later: there
// a short one has ended, and a long one has lost little.
//
// Two that count at once may lose one of both, ports share counters, and whoever
// writes the board can put anything there: it is a hint. worth.c does the same.
const (
	worthBrief      = 2 // connections, and
	worthMost       = 6 // the most that count
	worthLaterCalls = 8 // times as many calls, if most are short,
	worthLaterBytes = 256
	worthLong       = 5 // times the threshold and more: it was worth a lane
)

// brief are the counters of ports where there is no board.
var brief [boardEntries]atomic.Uint32

// worthLooking says, after the board, what speaks against looking for the peer now.
func (c *Conn) worthLooking(calls uint64) status.Reason {
	if !env.guess {
		return reasonNone
	}
	c.considered.Store(true)
	counter := c.home.brief.Load() // there is one, since the board has been asked
	if calls < worthLaterCalls*env.calls && c.tcpRx.Load()+c.tcpTx.Load() < worthLaterBytes*env.bytes &&
		counter[c.serverPort()%boardEntries].Load() >= worthBrief {
		return reasonBrief
	}
	return reasonNone
}

// worthNoted notes a connection that ends, with what it posted and took on a lane.
func (c *Conn) worthNoted(slots uint64) {
	if !c.considered.Load() {
		return
	}
	// Bytes do not count: those of one long call have gone by TCP before there is a lane.
	counter := &c.home.brief.Load()[c.serverPort()%boardEntries]
	is, worth := counter.Load(), c.calls.Load()+slots >= worthLong*env.calls
	if worth && is > 0 {
		counter.Store(min(is-1, worthMost))
	} else if !worth && is < worthMost {
		counter.Store(is + 1)
	}
}
