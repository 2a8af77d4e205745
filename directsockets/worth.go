package directsockets

import (
	"sync/atomic"

	"exnet/directsockets/status"
)

// A lane costs as much as some ten round trips by TCP, or more if these are quick. So a connection
// that ends soon after its upgrade would better have stayed on TCP. Nobody knows what will come,
// but most services have a habit. When a connection that was considered for a lane ends, each end
// notes whether it was long enough to be worth one. The note is a counter of the server's port,
// which processes share if there is a board.
//
// From worthBrief on, most connections to the port are short, and the next ones are considered
// later. By then a short connection has ended, and a long one has lost little.
//
// Two processes that count at the same time may lose a count, ports share counters, and a process
// that can write the board can put anything there: the counter is a hint. worth.c does the same.
const (
	worthBrief      = 2   // short connections, and
	worthMost       = 6   // the most that the counter holds
	worthLaterCalls = 8   // times as many calls if most are short,
	worthLaterBytes = 256 // or times as many bytes
	worthLong       = 5   // times the threshold: from here on it was worth a lane
)

// brief holds the counters of ports if there is no board.
var brief [boardEntries]atomic.Uint32

// worthLooking returns what speaks against looking for the peer now. The caller has asked the board
// before.
func (c *Conn) worthLooking(calls uint64) status.Reason {
	if !env.guess {
		return reasonNone
	}
	c.considered.Store(true)
	counter := c.home.brief.Load() // not nil, since the caller has asked the board
	if calls < worthLaterCalls*env.calls && c.tcpRx.Load()+c.tcpTx.Load() < worthLaterBytes*env.bytes &&
		counter[c.serverPort()%boardEntries].Load() >= worthBrief {
		return reasonBrief
	}
	return reasonNone
}

// worthNoted notes a connection that ends. slots is how many it posted and took on a lane.
func (c *Conn) worthNoted(slots uint64) {
	if !c.considered.Load() {
		return
	}
	// Bytes do not count: those of one long call went by TCP before there is a lane.
	counter := &c.home.brief.Load()[c.serverPort()%boardEntries]
	is, worth := counter.Load(), c.calls.Load()+slots >= worthLong*env.calls
	if worth && is > 0 {
		counter.Store(min(is-1, worthMost))
	} else if !worth && is < worthMost {
		counter.Store(is + 1)
	}
}
