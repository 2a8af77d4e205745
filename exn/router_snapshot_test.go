package exn

import (
	"net/netip"
	"slices"
	"sync"
	"testing"

	"exnet/arp"
)

// Any goroutine can get a port's state in the form of an interface's, at any time, even after the
// end.
func TestRouterSnapshot(t *testing.T) {
	t.Parallel()
	a, b := backends["emu"](t), backends["emu"](t)
	r := route(t, a(9), b(9), 1500)
	left := join(t, a, 1, NodeConfig{Addresses: subnets(hostAddresses(1)...), Routes: append(beyond(1), Route{
		Destination: netip.MustParsePrefix("10.3.0.0/24"), Gateway: netip.MustParseAddr("10.1.0.9")})})
	right := join(t, b, 1, NodeConfig{Addresses: subnets(hostAddresses(2)...), Routes: beyond(2), MTU: 1500})
	var looking sync.WaitGroup
	for port := range r.Ports() {
		looking.Go(func() {
			for range 20 {
				if s := r.Snapshot(port); s.Kind != RouterKind || s.Node != 9 {
					t.Errorf("%+v", s)
				}
			}
		})
	}
	var in, out, seen int // frames on either port, from left to right; and those seen after that
	var mu sync.Mutex
	count := func(n *int, want CaptureFrame) func(*CaptureFrame) {
		return func(f *CaptureFrame) {
			mu.Lock()
			defer mu.Unlock()
			if seen++; f.Sent == want.Sent && f.Peer == 1 && f.Rendezvous && len(f.Frame) > 1000 {
				*n++
			}
		}
	}
	stop := []func(){r.Capture(0, count(&in, CaptureFrame{})), r.Capture(1, count(&out, CaptureFrame{Sent: true}))}
	client, server := connect(t, left, right, "tcp", "10.2.0.1")
	if err := transfer(client, server, 1<<20); err != nil {
		t.Error(err)
	}
	for _, f := range stop {
		f()
	}
	if seen = 0; in < 1<<20/1500 || out < 1<<20/1500 {
		t.Errorf("of 1 MiB in segments of 1460 bytes were captured %d frames in and %d out", in, out)
	}
	client.Close()
	server.Close()
	looking.Wait()

	s := r.Snapshot(1)
	if seen > 0 {
		t.Error("captured after the end")
	}
	if s.MTU != 1500 || !s.Carrier || s.MAC != arp.DefaultPrefix.MAC(9).String() || s.Counters["rx_packets"] == 0 || s.Statistics.RXPackets == 0 {
		t.Errorf("%+v", s)
	}
	if !slices.ContainsFunc(s.Addresses, func(a AddressState) bool { return a.Prefix.String() == "fd02::9/64" && a.State == arp.Held.String() }) || len(s.Addresses) != 3 {
		t.Errorf("addresses %v", s.Addresses)
	}
	if len(s.Peers) != 1 || s.Peers[0].Node != 1 || !s.Peers[0].Met || s.Peers[0].MTU != 1500 {
		t.Errorf("nodes %+v", s.Peers)
	}
	if !slices.ContainsFunc(s.Neighbours, func(n Neighbour) bool { return n.Addr.String() == "10.2.0.1" && n.Node == 1 }) {
		t.Errorf("neighbours %+v", s.Neighbours)
	}
	if n := s.Counters["forward_unrouteable"]; n != 0 {
		t.Errorf("%d packets for subnets that nobody knows", n)
	}
	if _, err := left.Dial("tcp", "10.3.0.1:80"); err == nil {
		t.Error("connected to a subnet that nobody knows")
	}
	if s := r.Snapshot(0); s.Counters["forward_unrouteable"] == 0 {
		t.Errorf("%v", s.Counters)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
	if s := r.Snapshot(0); s.Carrier || len(s.Neighbours) != 0 {
		t.Errorf("of what is over: %+v", s)
	}
}
