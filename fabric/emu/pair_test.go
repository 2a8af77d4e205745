package emu

import (
	"strings"
	"testing"
	"testing/synctest"

	"exnet/fabric"
)

// A pair is two nodes, 1 and 2, in a bubble, each with a VELO port, an RMA port and a window of 1
// MiB.
type pair struct {
	*testing.T
	net    *Network
	node   [2]fabric.Node
	velo   [2]fabric.VELO
	rma    [2]fabric.RMA
	window [2]fabric.Window
	bytes  [2][]byte
}

const windowSize = 1 << 20

func inBubble(t *testing.T, cfg Config, f func(*pair)) {
	synctest.Test(t, func(t *testing.T) {
		p := &pair{T: t, net: New(cfg)}
		defer p.net.Close()
		for i := range p.node {
			p.attach(i)
		}
		f(p)
	})
}

func (p *pair) attach(i int) {
	p.Helper()
	var err error
	p.node[i], err = p.net.Attach(fabric.NodeID(i + 1))
	p.check(err)
	p.velo[i], err = p.node[i].OpenVELO(1, fabric.PortInterrupts{})
	p.check(err)
	p.rma[i], err = p.node[i].OpenRMA(1, fabric.PortInterrupts{})
	p.check(err)
	mem, err := p.node[i].Alloc(windowSize, fabric.RemoteRead|fabric.RemoteWrite)
	p.check(err)
	p.bytes[i] = mem.Bytes()
	p.window[i], err = p.rma[i].Register(mem, fabric.WindowSpec{Rights: fabric.RemoteRead | fabric.RemoteWrite, Length: windowSize})
	p.check(err)
}

func (p *pair) check(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// both applies settings to the two links between the nodes.
func (p *pair) both(s ...Setting) {
	p.net.Link(1, 2).Set(s...)
	p.net.Link(2, 1).Set(s...)
}

func (p *pair) send(n int) {
	p.Helper()
	p.check(p.velo[0].Send(fabric.VELODescriptor{To: p.velo[1].Address()}, make([]byte, n)))
}

// post posts an operation at node 1 with all notifications.
func (p *pair) post(c fabric.Command, n int) {
	p.Helper()
	p.check(p.rma[0].Post(&fabric.RMADescriptor{Command: c, Mask: 7, To: p.rma[1].Address(), Length: n, Local: p.window[0].NLA(), Remote: p.window[1].NLA(), Enable: 1}))
}

// polled takes all messages at node i+1.
func (p *pair) polled(i int) []fabric.Message {
	msgs := make([]fabric.Message, 2*veloSlots)
	return msgs[:p.velo[i].Poll(msgs)]
}

// notified takes all notifications at node i+1 and describes them.
func (p *pair) notified(i int) string {
	notes := make([]fabric.Notification, 1000)
	var s []string
	for _, n := range notes[:p.rma[i].Poll(notes)] {
		if n.Fault != fabric.FaultNone {
			s = append(s, n.Fault.String())
		} else {
			s = append(s, n.Kind.String())
		}
	}
	return strings.Join(s, ", ")
}

func (p *pair) wants(what string, got, want any) {
	p.Helper()
	if got != want {
		p.Errorf("%s: %v, want %v", what, got, want)
	}
}

func (p *pair) register(i int, r fabric.Register) uint64 {
	v, _ := p.node[i].ReadRegister(r)
	return v
}
