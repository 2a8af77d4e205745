package directsockets

import (
	"runtime"
	"sync"

	"exnet/directsockets/status"
	"exnet/fabric/dir"
)

// A table holds what this process publishes of its sockets for exn-tun show (ext-ds.md, section 7).
// The counters of a connection live in its record, so publishing them costs nothing.
//
// A record passes to another socket only when the garbage collector finds that nobody uses the
// connection any more. So a call that Close has overtaken does no harm if it still counts. A socket
// for which the table has no room gets a record that nobody sees.
type table struct {
	mu      sync.Mutex
	tried   bool
	records []status.Record
	used    int // of records, how many were ever used
	free    []*status.Record
}

var shown table

// shownMost is how many sockets can be shown. Unused records cost no memory.
const shownMost = 1 << 16

// take returns a cleared record. seen is false if the record is not in the table.
func (t *table) take(fabric string) (r *status.Record, seen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tried {
		t.tried = true
		var err error
		if t.records, err = status.Publish(fabric, env.peers == dir.Group, shownMost); err != nil {
			log("nothing is shown of this process: %v", err)
		}
	}
	if n := len(t.free); n > 0 {
		r, t.free = t.free[n-1], t.free[:n-1]
		r.Clear()
		return r, true
	}
	if t.used == len(t.records) {
		return new(status.Record), false
	}
	t.used++
	return &t.records[t.used-1], true
}

func (t *table) giveBack(r *status.Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.free = append(t.free, r)
}

// show gives owner a record, for as long as owner is reachable.
func show[T any](owner *T, fabric string) *status.Record {
	if fabric == "" {
		fabric = env.fabric
	}
	if env.off {
		return new(status.Record) // as if the program had no library
	}
	warn()
	r, seen := shown.take(fabric)
	if seen {
		runtime.AddCleanup(owner, shown.giveBack, r)
	}
	return r
}

// showRead publishes how many bytes we have read by the lane. showWritten does so for writing.
func (c *Conn) showRead() {
	all, window := c.in.r.Bytes()
	c.shown.Reads(all, window, c.in.r.ZCopied())
}

func (c *Conn) showWritten() {
	all, window := c.out.w.Bytes()
	c.shown.Writes(all, window, c.out.w.ZCopied())
}

// become publishes the state, which other goroutines may be changing.
func (c *Conn) become() {
	for s := c.state.Load(); ; s = c.state.Load() {
		c.shown.State.Store(s)
		if c.state.Load() == s {
			return
		}
	}
}
