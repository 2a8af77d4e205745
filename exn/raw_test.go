package exn

import (
	"net/netip"
	"sync"
	"testing"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/fabric/emu"
)

// A rawNode sends and receives raw frames: another system on the fabric, hostile if a test wants.
type rawNode struct {
	node fabric.Node
	irq  fabric.Interrupt

	mu     sync.Mutex
	answer func(frame []byte) []byte // called for each frame; the returned frame is sent
	out    [][]byte
	got    [][]byte
	quit   bool
	over   chan struct{}
}

func newRaw(t *testing.T, net *emu.Network, id fabric.NodeID, answer func([]byte) []byte) *rawNode {
	t.Helper()
	node, err := net.Attach(id)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawNode{node: node, answer: answer, over: make(chan struct{})}
	if r.irq, err = node.NewInterrupt(); err != nil {
		t.Fatal(err)
	}
	both := fabric.PortInterrupts{Receive: r.irq, Transmit: r.irq}
	eth, err := exteth.New(node, exteth.Config{VELOIRQ: both, RMAIRQ: both, Promiscuous: true, Receive: func(f *exteth.Frame) error {
		frame := append([]byte(nil), f.Data...)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.got = append(r.got, frame)
		if r.answer != nil {
			if a := r.answer(frame); a != nil {
				r.out = append(r.out, a)
			}
		}
		return nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	go r.run(eth)
	return r
}

func (r *rawNode) run(eth *exteth.Engine) {
	defer close(r.over)
	start := time.Now()
	for {
		now := time.Since(start)
		work, _ := eth.PollRMA(now, 64)
		n, _ := eth.PollVELO(now, 64)
		eth.Advance(now)
		r.mu.Lock()
		quit, out := r.quit, r.out
		r.out = nil
		r.mu.Unlock()
		if quit {
			_ = eth.Close()
			_ = r.irq.Close()
			_ = r.node.Close()
			return
		}
		for _, f := range out {
			if b := eth.Borrow(); b != nil {
				_ = eth.Send(b, 0, copy(b.Bytes, f), exteth.VNet{}, now)
			}
		}
		if work+n+len(out) == 0 && r.irq.Arm() {
			r.irq.Wait(time.Millisecond)
		}
	}
}

func (r *rawNode) send(frames ...[]byte) {
	r.mu.Lock()
	r.out = append(r.out, frames...)
	r.mu.Unlock()
	r.irq.Wake()
}

func (r *rawNode) take() (all [][]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all, r.got = r.got, nil
	return all
}

// packets takes what came and counts the IPv4 packets in it.
func (r *rawNode) packets() (n int) {
	for _, f := range r.take() {
		if f[12] == 0x08 && f[13] == 0x00 {
			n++
		}
	}
	return n
}

func (r *rawNode) answerWith(f func([]byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *rawNode) stop() {
	r.mu.Lock()
	r.quit = true
	r.mu.Unlock()
	r.irq.Wake()
	<-r.over
}

// mac returns the node's MAC address.
func (r *rawNode) mac() arp.MAC { return macOf(r.node.ID()) }

// arpReply answers requests for all addresses but those of the rig.
func arpReply(mac arp.MAC) func([]byte) []byte {
	return func(frame []byte) []byte {
		p, ok := arp.ParseFrame(frame)
		if !ok || p.Op != arp.Request || p.Sender == p.Target || p.Sender.IsUnspecified() || netip.PrefixFrom(addr4(0), 28).Contains(p.Target) {
			return nil
		}
		a := arp.Packet{Op: arp.Reply, SenderMAC: mac, Sender: p.Target, TargetMAC: p.SenderMAC, Target: p.Sender}
		return a.AppendFrame(nil, p.SenderMAC)
	}
}
