package directsockets

import (
	"runtime"
	"sync"

	"exnet/directsockets/status"
)

// What this process publishes of its sockets for exn-tun show (ext-ds.md, section 7).
// The counters of a connection are in its record: to publish them costs nothing.
//
// A record is another's only when the garbage collector knows that nobody uses the
// connection any more, so who still counts in a call that Close has overtaken does no
// harm. Sockets beyond the table have a record that nobody sees.
type table struct {
	mu      sync.Mutex
	tried   bool
	records []status.Record
	used    int // of records, once at least
	free    []*status.Record
}

var shown table

// shownMost is how many can be seen. Those that were never used cost nothing.
const shownMost = 1 << 16

// take gives a record, as of a socket that is new; false: it is not of the table.
func (t *table) take(fabric string) (r *status.Record, seen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.tried {
		t.tried = true
		var err error
		if t.records, err = status.Publish(fabric, shownMost); err != nil {
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

// show gives owner a record until it is garbage.
func show[T any](owner *T, fabric string) *status.Record {
	if fabric == "" {
		fabric = env.fabric
	}
	if env.off {
		return new(status.Record) // as if it had no library
	}
	warn()
	r, seen := shown.take(fabric)
	if seen {
		runtime.AddCleanup(owner, shown.giveBack, r)
	}
	return r
}

// showRead publishes the bytes that we have read by the lane, showWritten those that we
// have written.
func (c *Conn) showRead() {
	all, window := c.in.r.Bytes()
	c.shown.Reads(all, window, c.in.r.ZCopied())
}

func (c *Conn) showWritten() {
	all, window := c.out.w.Bytes()
	c.shown.Writes(all, window, c.out.w.ZCopied())
}

// become publishes the state, which others may be changing.
func (c *Conn) become() {
	for s := c.state.Load(); ; s = c.state.Load() {
		c.shown.State.Store(s)
		if c.state.Load() == s {
			return
		}
	}
}
