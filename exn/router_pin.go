package exn

import "gvisor.dev/gvisor/pkg/tcpip/stack"

// A pin keeps the memory of packets that are being forwarded.
//
// netstack's IPv4 takes a slice of the header, copies the packet, and reads the TTL of
// the slice then. But headers are copied on write: the copy takes the last reference
// of what the slice is in, and its memory goes to a pool, from which another goroutine
// may have it by then. The packet would get the TTL of another. Between the two
// stands only the hook of nftables, so this hooks in there and holds one more reference
// until the packet is delivered. TestRouterBetweenKernels under the race detector shows
// whether it is still needed.
type pin struct{ net *netstack }

var _ stack.NFTablesInterface = pin{}

// CheckForward implements stack.NFTablesInterface, on the goroutine of the port on which
// the packet came.
func (p pin) CheckForward(pkt *stack.PacketBuffer, _ *stack.Route, _ stack.AddressFamily) bool {
	a := p.net.ports[pkt.InputNICID-1]
	a.unpin()
	a.pinned = pkt.Clone()
	return true
}

func (a *attachment) unpin() {
	if a.pinned != nil {
		a.pinned.DecRef()
		a.pinned = nil
	}
}

// CheckPrerouting implements stack.NFTablesInterface.
func (pin) CheckPrerouting(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckInput implements stack.NFTablesInterface.
func (pin) CheckInput(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckOutput implements stack.NFTablesInterface.
func (pin) CheckOutput(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckPostrouting implements stack.NFTablesInterface.
func (pin) CheckPostrouting(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckIngress implements stack.NFTablesInterface.
func (pin) CheckIngress(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }

// CheckEgress implements stack.NFTablesInterface.
func (pin) CheckEgress(*stack.PacketBuffer, *stack.Route, stack.AddressFamily) bool { return true }
