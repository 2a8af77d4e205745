package ofi

import (
	"time"

	"exnet/fabric"
)

// What is under way to a port that is closed must not reach the next port with
// its VPID. So a node tells its peers of the close, and they answer. What a
// peer sent before the answer is discarded, and the VPID can be opened again
// when all have answered, or died. An answer takes a round trip; a peer that
// does not give it within flushPatience holds up no one, but what it sends to
// the new port is discarded until it has.
const flushPatience = time.Second

type flushing [2][fabric.VPIDCount]uint32

// flushPort tells the peers that a port was closed.
func (n *Node) flushPort(u fabric.Unit, v fabric.VPID) {
	if n.closing {
		return
	}
	for _, p := range n.list {
		if p.up && !p.self {
			p.flushing[u][v]++
			n.flushing[u][v]++
			p.put(record{kind: recClosed, a: uint8(u), dst: uint8(v)})
		}
	}
}

// flushed waits until a VPID can be opened; Node.mu is held, and let go of
// meanwhile.
func (n *Node) flushed(u fabric.Unit, v fabric.VPID) {
	for end := time.Now().Add(flushPatience); v.Valid() && n.flushing[u][v] > 0 && !n.closed && time.Now().Before(end); {
		n.drive()
		n.mu.Unlock()
		time.Sleep(napTime / 4)
		n.mu.Lock()
	}
}

// forgetFlushing: a peer that is gone answers nothing.
func (p *peer) forgetFlushing() {
	for u := range p.flushing {
		for v, k := range p.flushing[u] {
			p.n.flushing[u][v] -= k
		}
	}
	p.flushing = flushing{}
}

func (p *peer) receivedFlushed(r *record) bool {
	if r.a > 1 || p.flushing[r.a][r.dst] == 0 {
		return false
	}
	p.flushing[r.a][r.dst]--
	p.n.flushing[r.a][r.dst]--
	return true
}
