package exn

import "sync/atomic"

// A counter is one of the interface's own statistics; those of frames are exteth's.
// Those that begin with rx say why frames count as rx_refused, which has them all.
type counter uint8

const (
	txNotIP         counter = iota // packets of the device that are no IP packets
	txCoupled                      // packets that were sent as a part of the one before: no loss
	txPendingFull                  // packets pushed out by later ones while their neighbour was looked for
	txPendingOld                   // packets whose neighbour was not found in time
	txUnreachable                  // packets whose neighbour cannot be resolved
	txNeighbours                   // packets for one neighbour too many that is looked for
	txPendingMemory                // packets for which waiting would take too much memory
	txNoCopy                       // netstack's frames that found no free buffer
	rxNotIP                        // frames that a TUN cannot carry
	rxSpoofed                      // ARP packets that speak for another node
	rxResolution                   // ARP and neighbour discovery, handed to netstack: no loss
	deviceDown                     // the interface was down
	deviceRefused                  // the kernel did not take the packet
	deviceRead                     // packets that could not be read
	tooBigSent                     // ICMP errors to the local kernel: too big
	unreachableSent                // the same: no such neighbour
	conflicts                      // claims of our addresses by others
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

// statistics may be read by anyone at any time.
type statistics [counters]atomic.Uint64

func (s *statistics) count(c counter) { s[c].Add(1) }
