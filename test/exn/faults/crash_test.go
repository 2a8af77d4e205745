package faults

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/exn"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// some is an amount that shows that a connection works: far more than socket buffers and queues
// hold.
const some = 32 << 20

// A daemon is killed under load and started again. The interface stays, and TCP connections go on
// in both directions without losing data.
func TestKillUnderLoad(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 3})
	f.OnlyExn("there is no daemon to kill")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
	flows := []*exn.Flow{a.Flow(b, b.IPv4), b.Flow(a, a.IPv6)}
	bystander := a.Flow(c, c.IPv4)
	times := 1
	if !testing.Short() {
		times = 5
	}
	for range times {
		for _, victim := range []*exn.Node{b, a} {
			for _, flow := range flows {
				flow.Await(some)
			}
			victim.Kill()
			victim.NS.Do(t, func() {
				if _, err := net.InterfaceByName(exn.Link); err != nil {
					t.Errorf("the interface of %v did not survive: %v", victim, err)
				}
			})
			if victim.Carrier() {
				t.Errorf("%v has a carrier without a daemon", victim)
			}
			if victim == b {
				bystander.Await(some) // it does not notice
			}
			begin := time.Now()
			victim.Restart()
			ready := time.Since(begin)
			for _, flow := range flows {
				flow.Await(1)
			}
			t.Logf("%v: ready %v after its start, all flows went on after %v", victim, ready, time.Since(begin))
			if !victim.Snapshot().Adopted {
				t.Errorf("%v has not adopted its interface", victim)
			}
			if !victim.Carrier() {
				t.Errorf("%v has no carrier", victim)
			}
		}
	}
	for _, flow := range append(flows, bystander) {
		flow.Stop()
	}
}

// A node that leaves in an orderly way removes its interface. The others report it as unreachable
// to their programs, and find it again when it is back.
func TestLeaveAndReturn(t *testing.T) {
	f := exn.Up(t, exn.Options{Nodes: 3, Capture: true})
	f.OnlyExn("there is no daemon to leave")
	a, b, c := f.Nodes[0], f.Nodes[1], f.Nodes[2]
	a.Datagrams(b, b.IPv4).Arrives(a, 100)
	bystander := a.Flow(c, c.IPv4)
	b.Leave()
	b.NS.Do(t, func() {
		if _, err := net.InterfaceByName(exn.Link); err == nil {
			t.Error("the interface of a node that left is still there")
		}
	})
	// ICMP unreachable ends the connect. If nothing did, it would be TCP's own time-out.
	a.NS.Do(t, func() {
		conn, err := net.DialTimeout("tcp", net.JoinHostPort(b.IPv4.String(), "9"), time.Minute)
		if err == nil {
			conn.Close()
			t.Error("a connection to a node that left")
		} else if !strings.Contains(err.Error(), syscall.EHOSTUNREACH.Error()) {
			t.Errorf("a connection to a node that left ends with: %v", err)
		}
	})
	bystander.Await(some)
	b.Restart()
	flow := a.Flow(b, b.IPv4)
	flow.Await(some)
	flow.Stop()
	bystander.Stop()
}
