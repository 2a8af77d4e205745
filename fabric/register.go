package fabric

import "fmt"

// A Register is an entry of a node's register file: one named 64-bit value
// (REG-1). Counters count up from the node's attachment and are read-only.
type Register uint16

// The registers (REG-2).
const (
	RegNodeID  Register = iota // the node's own ID
	RegGroups                  // group membership, bit g = group g; writable
	RegScratch                 // no meaning; writable, for tests and tools

	RegVELOSent          // messages accepted by Send; a multicast counts once
	RegVELOSentBytes     // their payload bytes
	RegVELOReceived      // messages returned by Poll
	RegVELOReceivedBytes // their payload bytes
	RegVELOFull          // Sends refused with ErrFull
	RegVELONoPort        // messages for a VPID that is not open here
	// messages that a closing port had not polled, or that were in flight to it
	RegVELODiscarded
	RegVELOMulticastCopies // copies made of multicast messages, without those lost
	RegVELOMulticastLost   // copies lost at full members; both at the sender

	RegRMAPuts      // PUTs posted, without immediate ones
	RegRMAPutBytes  // their bytes
	RegRMAGets      // GETs posted
	RegRMAGetBytes  // their bytes
	RegRMAImmediate // immediate PUTs posted
	RegRMAPackets   // network packets of these PUTs and GETs, 496 bytes each
	RegRMAFull      // Posts refused with ErrFull
	RegRMARequester // requester notifications polled
	RegRMAResponder // responder notifications polled
	RegRMACompleter // completer notifications polled
	RegRMAFaults    // notifications with a fault polled
	RegRMADiscarded // notifications that a closing port had not polled

	RegTLBHits    // translations found in the port's own table
	RegTLBMisses  // translations that had to be fetched from the peer
	RegATUFaults  // operations posted here that failed translation
	RegATUWindows // windows registered now

	RegLinkCRCErrors       // packets with a bad CRC
	RegLinkRetransmissions // packets sent again by the link
	RegLinkFailures        // packets given up after retransmissions

	// interrupts raised, by the sender's or the receiver's node; the backend chooses
	RegInterrupts
	// messages that needed none, because the receiver was awake or already notified
	RegInterruptsSuppressed

	RegPeers           // nodes attached besides this one
	RegPeersLost       // nodes that left without saying so
	RegChannels        // channels open now
	RegDroppedVELO     // channels dropped: illegal word in a VELO ring
	RegDroppedRMA      // channels dropped: illegal word in a notification ring
	RegDroppedCredit   // channels dropped: impossible credit
	RegDroppedFlow     // channels dropped: illegal flow table
	RegDroppedDoorbell // channels dropped: rang without reason
	RegDroppedControl  // channels dropped: illegal control message
	RegDroppedMemory   // channels dropped or refused: no memory, seals or size wrong

	RegisterCount
)

var registerNames = [RegisterCount]string{
	"node", "groups", "scratch",
	"velo.sent", "velo.sent_bytes", "velo.received", "velo.received_bytes", "velo.full", "velo.no_port",
	"velo.discarded", "velo.multicast_copies", "velo.multicast_lost",
	"rma.puts", "rma.put_bytes", "rma.gets", "rma.get_bytes", "rma.immediate", "rma.packets", "rma.full",
	"rma.requester", "rma.responder", "rma.completer", "rma.faults", "rma.discarded",
	"atu.tlb_hits", "atu.tlb_misses", "atu.faults", "atu.windows",
	"link.crc_errors", "link.retransmissions", "link.failures",
	"irq.raised", "irq.suppressed",
	"peers", "peers_lost", "channels",
	"dropped.velo", "dropped.rma", "dropped.credit", "dropped.flow", "dropped.doorbell",
	"dropped.control", "dropped.memory",
}

func (r Register) String() string {
	if r < RegisterCount {
		return registerNames[r]
	}
	return fmt.Sprintf("register(%d)", uint16(r))
}

// Writable reports whether the register can be written, here and remotely.
func (r Register) Writable() bool { return r == RegGroups || r == RegScratch }

// RegisterByName finds a register by its name.
func RegisterByName(name string) (Register, bool) {
	for i, n := range registerNames {
		if n == name {
			return Register(i), true
		}
	}
	return 0, false
}

// MergeImmediate applies an immediate PUT to a little-endian word: the bytes
// of data whose bit is set in enable replace those of old.
func MergeImmediate(old, data uint64, enable uint8) uint64 {
	for i := range 8 {
		if enable>>i&1 == 1 {
			m := uint64(0xff) << (8 * i)
			old = old&^m | data&m
		}
	}
	return old
}
