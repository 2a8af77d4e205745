package exteth

import (
	"fmt"
	"sync/atomic"
)

// A Counter is one of the engine's statistics. Each lost frame counts in exactly one counter, which
// names the reason. Each such counter belongs to a [Field] of the interface's statistics (STA-1).
type Counter uint8

// A Field is a field of the interface statistics that ifconfig prints (thesis, Listing 5.1).
type Field uint8

// The fields. Counters that are no loss belong to FieldNone.
const (
	FieldNone Field = iota
	FieldRXPackets
	FieldRXBytes
	FieldRXErrors
	FieldRXDropped
	FieldRXOverruns
	FieldRXFrame
	FieldTXPackets
	FieldTXBytes
	FieldTXErrors
	FieldTXDropped
	FieldTXOverruns
	FieldTXCarrier
	FieldTXCollisions // always 0: this fabric has none
	fieldEnd
)

// The counters.
const (
	RXPackets           Counter = iota // frames passed up
	RXBytes                            // their bytes, MAC headers included
	RXMulticast                        // those of RXPackets to a group or broadcast
	RXEager                            // eager frames completed
	RXRendezvous                       // rendezvous frames fetched
	RXFragments                        // eager fragments received
	RXAdverts                          // adverts received
	RXGets                             // GETs issued
	RXGetsInPlace                      // those of RXGets whose sink was the receiver itself
	RXNacks                            // NACKs sent
	RXEarly                            // notifications that came before their transfer was entered
	RXBadMessage                       // malformed or nonsensical messages
	RXVersion                          // messages of a node with another version
	RXFault                            // GETs that failed
	RXTimeout                          // GETs without a notification in time
	RXUnmatched                        // notifications that match no transfer
	RXFragmentLost                     // eager frames with a fragment missing
	RXReassemblyExpired                // eager frames that were not completed in time
	RXNodeLeft                         // frames under way from a node that left
	RXNoSink                           // adverts refused: no sink buffer free
	RXTooLong                          // frames longer than this node takes
	RXOrderFull                        // frames that found the order queue full
	RXFiltered                         // frames of groups that this node does not want
	RXForeign                          // unicast frames for another node
	RXRefused                          // frames that the receive function did not take
	TXPackets                          // frames sent
	TXBytes                            // their bytes, MAC headers included
	TXMulticast                        // those of TXPackets to a group or broadcast
	TXEager                            // eager frames sent
	TXRendezvous                       // frames fetched by their receiver
	TXFragments                        // eager fragments sent
	TXAdverts                          // adverts sent
	TXQueued                           // frames that had to wait for their peer
	TXSegmented                        // super-packets cut for a peer that does not take them
	TXSegments                         // packets they became
	TXChecksums                        // checksums completed for a peer that takes no partial ones
	TXBadFrame                         // frames too short, too long or with a wrong virtio header
	TXFabric                           // unexpected errors of the fabric
	TXTimeout                          // adverts that were never fetched
	TXNacked                           // adverts that the receiver refused
	TXForeign                          // frames to a MAC address that is no node of this fabric
	TXSelf                             // frames to our own MAC address
	TXTooBig                           // frames above the receiver's MTU
	TXVersion                          // frames to a node with another version
	TXQueueFull                        // frames for a peer whose queue was full
	TXQueueExpired                     // frames that waited too long for their peer
	TXNoBuffer                         // frames cut into a buffer when none was free
	TXLinkQueueFull                    // packets of a cut super-packet for which no buffer was free
	TXMulticastFull                    // multicast frames the fabric had no room for
	TXNoNode                           // frames to a node that is not there
	TXNodeLeft                         // frames under way to a node that left
	Counters
)

var counterTable = [Counters]struct {
	name  string
	field Field
}{
	RXPackets:           {"rx_packets", FieldRXPackets},
	RXBytes:             {"rx_bytes", FieldRXBytes},
	RXMulticast:         {"rx_multicast", FieldNone},
	RXEager:             {"rx_eager", FieldNone},
	RXRendezvous:        {"rx_rendezvous", FieldNone},
	RXFragments:         {"rx_fragments", FieldNone},
	RXAdverts:           {"rx_adverts", FieldNone},
	RXGets:              {"rx_gets", FieldNone},
	RXGetsInPlace:       {"rx_gets_in_place", FieldNone},
	RXNacks:             {"rx_nacks", FieldNone},
	RXEarly:             {"rx_early", FieldNone},
	RXBadMessage:        {"rx_bad_message", FieldRXErrors},
	RXVersion:           {"rx_version", FieldRXErrors},
	RXFault:             {"rx_fault", FieldRXErrors},
	RXTimeout:           {"rx_timeout", FieldRXErrors},
	RXUnmatched:         {"rx_unmatched", FieldNone},
	RXFragmentLost:      {"rx_fragment_lost", FieldRXFrame},
	RXReassemblyExpired: {"rx_reassembly_expired", FieldRXFrame},
	RXNodeLeft:          {"rx_node_left", FieldRXErrors},
	RXNoSink:            {"rx_no_sink", FieldRXDropped},
	RXTooLong:           {"rx_too_long", FieldRXErrors},
	RXOrderFull:         {"rx_order_full", FieldRXOverruns},
	RXFiltered:          {"rx_filtered", FieldNone}, // not wanted here: no loss
	RXForeign:           {"rx_foreign", FieldRXDropped},
	RXRefused:           {"rx_refused", FieldRXDropped},
	TXPackets:           {"tx_packets", FieldTXPackets},
	TXBytes:             {"tx_bytes", FieldTXBytes},
	TXMulticast:         {"tx_multicast", FieldNone},
	TXEager:             {"tx_eager", FieldNone},
	TXRendezvous:        {"tx_rendezvous", FieldNone},
	TXFragments:         {"tx_fragments", FieldNone},
	TXAdverts:           {"tx_adverts", FieldNone},
	TXQueued:            {"tx_queued", FieldNone},
	TXSegmented:         {"tx_segmented", FieldNone},
	TXSegments:          {"tx_segments", FieldNone},
	TXChecksums:         {"tx_checksums", FieldNone},
	TXBadFrame:          {"tx_bad_frame", FieldTXErrors},
	TXFabric:            {"tx_fabric", FieldTXErrors},
	TXTimeout:           {"tx_timeout", FieldTXErrors},
	TXNacked:            {"tx_nacked", FieldTXDropped},
	TXForeign:           {"tx_foreign", FieldTXDropped},
	TXSelf:              {"tx_self", FieldTXDropped},
	TXTooBig:            {"tx_too_big", FieldTXDropped},
	TXVersion:           {"tx_version", FieldTXErrors},
	TXQueueFull:         {"tx_queue_full", FieldTXDropped},
	TXQueueExpired:      {"tx_queue_expired", FieldTXDropped},
	TXNoBuffer:          {"tx_no_buffer", FieldTXDropped},
	TXLinkQueueFull:     {"tx_link_queue_full", FieldTXDropped},
	TXMulticastFull:     {"tx_multicast_full", FieldTXOverruns},
	TXNoNode:            {"tx_no_node", FieldTXCarrier},
	TXNodeLeft:          {"tx_node_left", FieldTXCarrier},
}

func (c Counter) String() string {
	if c < Counters {
		return counterTable[c].name
	}
	return fmt.Sprintf("counter(%d)", uint8(c))
}

// Field returns the field of Listing 5.1 that the counter is part of.
func (c Counter) Field() Field {
	if c < Counters {
		return counterTable[c].field
	}
	return FieldNone
}

// Statistics are the counters of an engine. Any goroutine may read them at any time.
type Statistics struct {
	counters [Counters]atomic.Uint64
}

func (s *Statistics) add(c Counter, n int) { s.counters[c].Add(uint64(n)) }
func (s *Statistics) count(c Counter)      { s.counters[c].Add(1) }

// Get returns one counter.
func (s *Statistics) Get(c Counter) uint64 { return s.counters[c].Load() }

// An Interface holds the statistics of Listing 5.1.
type Interface struct {
	RXPackets, RXBytes                       uint64
	RXErrors, RXDropped, RXOverruns, RXFrame uint64
	TXPackets, TXBytes                       uint64
	TXErrors, TXDropped, TXOverruns          uint64
	TXCarrier, TXCollisions                  uint64
}

// Interface sums the counters by field.
func (s *Statistics) Interface() Interface {
	var f [fieldEnd]uint64
	for c := range Counters {
		f[c.Field()] += s.Get(c)
	}
	return Interface{
		RXPackets: f[FieldRXPackets], RXBytes: f[FieldRXBytes],
		RXErrors: f[FieldRXErrors], RXDropped: f[FieldRXDropped], RXOverruns: f[FieldRXOverruns], RXFrame: f[FieldRXFrame],
		TXPackets: f[FieldTXPackets], TXBytes: f[FieldTXBytes],
		TXErrors: f[FieldTXErrors], TXDropped: f[FieldTXDropped], TXOverruns: f[FieldTXOverruns],
		TXCarrier: f[FieldTXCarrier], TXCollisions: f[FieldTXCollisions],
	}
}

// String prints the lines of Listing 5.1.
func (i Interface) String() string {
	return fmt.Sprintf("RX packets %d  bytes %d (%s)\nRX errors %d  dropped %d  overruns %d  frame %d\n"+
		"TX packets %d  bytes %d (%s)\nTX errors %d  dropped %d overruns %d  carrier %d  collisions %d\n",
		i.RXPackets, i.RXBytes, binaryBytes(i.RXBytes), i.RXErrors, i.RXDropped, i.RXOverruns, i.RXFrame,
		i.TXPackets, i.TXBytes, binaryBytes(i.TXBytes), i.TXErrors, i.TXDropped, i.TXOverruns, i.TXCarrier, i.TXCollisions)
}

// binaryBytes formats bytes as ifconfig does: 1572 is "1.5 KiB".
func binaryBytes(n uint64) string {
	if n < 1024 {
		return fmt.Sprintf("%d.0 B", n)
	}
	v, unit := float64(n), 0
	for v >= 1024 && unit < 6 {
		v /= 1024
		unit++
	}
	return fmt.Sprintf("%.1f %ciB", v, " KMGTPE"[unit])
}
