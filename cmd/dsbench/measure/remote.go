package measure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
)

// A session between two hosts is a Duo, too: lead is a goroutine of the coordinator, and
// follow obeys the same orders at the other end of a network connection.
//
//	client                                  server
//	  coordinator ── orders as JSON ────────► follow
//	      └─ lead ── what is measured ──────────┘
//
// There is no memory that both share and no processor of their own. What other programs
// take is not told from what carries the bytes, a tunnel say, so each side's Yardstick
// alone says whether a run was noisy.

// Remote is a Duo whose follow is at the other end of control, which it takes over.
// Its ends are told by the contenders themselves: see ServeRemote.
func Remote(control net.Conn, contenders map[string]Contender) *Duo {
	ours, theirs := net.Pipe()
	meter := new(Meter)
	lead := newPeer(Lead, ours)
	go func() {
		defer close(lead.ended)
		lead.how = "it ended"
		if err := serveHere(theirs, Lead, contenders, meter); err != nil {
			lead.how = err.Error()
		}
	}()
	follow := newPeer(Follow, control)
	follow.far, follow.how = true, fmt.Sprintf("%v ended the connection: the server there was stopped, or is no dsbench server", control.RemoteAddr())
	close(follow.ended) // nothing is left of it here once the connection is gone
	duo := newDuo(lead, follow)
	duo.Lead = meter
	return duo
}

func newPeer(role Role, control io.ReadWriteCloser) *peer {
	return &peer{role: role, control: control, enc: json.NewEncoder(control), ended: make(chan struct{}), kill: func() {}}
}

// ServeRemote obeys a client at the other end of control until it ends or ctx does.
// What it may ask for is what contenders make, so those check the parameters.
func ServeRemote(ctx context.Context, control net.Conn, contenders map[string]Contender) error {
	defer context.AfterFunc(ctx, func() { control.Close() })()
	type limited struct {
		io.Reader
		io.WriteCloser
	}
	return serveHere(limited{io.LimitReader(control, longestSession), control}, Follow, contenders, nil)
}

func serveHere(control io.ReadWriteCloser, role Role, contenders map[string]Contender, meter *Meter) error {
	runtime.LockOSThread() // as in a process of its own: halves may rely on it
	defer runtime.UnlockOSThread()
	return serve(control, role, &Site{LeadBell: -1, FollowBell: -1, yard: new(Yardstick), meter: meter}, contenders)
}

// Refuse answers whatever a client orders with why it is not obeyed.
func Refuse(control net.Conn, why string) error {
	var o order
	return errors.Join(json.NewDecoder(io.LimitReader(control, longestSession)).Decode(&o),
		json.NewEncoder(control).Encode(answer{Error: why}), control.Close())
}

// longestSession is more than the orders of any session together: who sends more is no
// client, and does not get more of our memory.
const longestSession = 1 << 20
