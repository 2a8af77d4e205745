package exn

import "gvisor.dev/gvisor/pkg/tcpip/stack"

// A pin keeps the memory of packets alive while they are forwarded.
//
// netstack's IPv4 takes a slice of the header, then copies the packet, and then reads the TTL from
// the slice. But headers are copied on write. The copy drops the last reference to the memory of
// the slice, which returns to a pool, where another goroutine may take it. The packet would then
// get the TTL of another. Only the hook of nftables runs between the two steps, so this type hooks
// in there and holds one more reference until the packet is delivered. TestRouterBetweenKernels
// under the race detector shows whether that is still needed.
type pin struct{ net *netstack }

var _ stack.NFTablesInterface = pin{}

// CheckForward implements stack.NFTablesInterface. It runs on the goroutine of the port that
// received the packet.
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
