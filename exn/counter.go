package exn

import "sync/atomic"

// A counter is one of the interface's own statistics; package exteth counts frames. Counters that
// begin with rx give the reason of frames that count as rx_refused.
type counter uint8

const (
	txNotIP   counter = iota // packets of the device that are not IP
	txCoupled                // packets sent as part of the train before them: no loss
	// packets displaced by later ones while their neighbour was being resolved
	txPendingFull
	txPendingOld    // packets whose neighbour was not resolved in time
	txUnreachable   // packets whose neighbour cannot be resolved
	txNeighbours    // packets to resolve one neighbour too many
	txPendingMemory // packets that would need too much memory while waiting
	txNoCopy        // netstack's frames for which no buffer was free
	rxNotIP         // frames that a TUN cannot carry
	rxSpoofed       // ARP packets that claim to be from another node
	rxResolution    // ARP and neighbour discovery for netstack: no loss
	deviceDown      // the interface was down
	deviceRefused   // the kernel refused the packet
	deviceRead      // packets that could not be read
	tooBigSent      // ICMP errors to the local kernel: too big
	unreachableSent // the same: the neighbour is unreachable
	conflicts       // claims of our addresses by other nodes
	counters
)

var counterNames = [counters]string{
	txNotIP:         "tx_not_ip",
	txCoupled:       "tx_coupled",
	txPendingFull:   "tx_pending_full",
	txPendingOld:    "tx_pending_expired",
	txUnreachable:   "tx_unreachable",
	txNeighbours:    "tx_too_many_neighbours",
	txPendingMemory: "tx_pending_memory",
	txNoCopy:        "tx_resolution_no_buffer",
	rxNotIP:         "rx_not_ip",
	rxSpoofed:       "rx_spoofed",
	rxResolution:    "rx_resolution",
	deviceDown:      "rx_refused_down",
	deviceRefused:   "rx_refused_kernel",
	deviceRead:      "tx_device_read",
	tooBigSent:      "icmp_too_big",
	unreachableSent: "icmp_unreachable",
	conflicts:       "address_conflicts",
}

func (c counter) String() string { return counterNames[c] }

// statistics may be read by any goroutine at any time.
type statistics [counters]atomic.Uint64

func (s *statistics) count(c counter) { s[c].Add(1) }
