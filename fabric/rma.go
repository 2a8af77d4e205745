package fabric

import "fmt"

// RMA: remote memory access between registered windows. One operation moves 1 byte to 8 MiB. On the
// network it is split into packets of 496 bytes, and the last packet writes the notifications
// (RMA-2, RMA-3, RMA-7).

const (
	// RMAMaxLength is the largest number of bytes that one operation moves.
	RMAMaxLength = 8 << 20
	// RMAPacket is a network packet of the RMA unit, in bytes.
	RMAPacket = 512
	// RMAPacketHeader is the part of a packet that is its network descriptor.
	RMAPacketHeader = 16
	// RMAMTU is the payload of a full packet.
	RMAMTU = RMAPacket - RMAPacketHeader
)

// RMAPackets returns how many packets an operation of n bytes takes.
func RMAPackets(n int) int { return (n + RMAMTU - 1) / RMAMTU }

// LastPacket returns the address of the last packet of an operation of n > 0 bytes that begins at
// start. Responder and completer notifications refer to it (RMA-7, MAT-1).
func LastPacket(start NLA, n int) NLA { return start + NLA((n-1)/RMAMTU*RMAMTU) }

// A Command is what an RMA descriptor asks for.
type Command uint8

// The commands. Immediate PUT carries its payload in the descriptor.
const (
	Put Command = iota + 1
	Get
	ImmediatePut
)

func (c Command) String() string {
	switch c {
	case Put:
		return "put"
	case Get:
		return "get"
	case ImmediatePut:
		return "immediate-put"
	}
	return fmt.Sprintf("command(%d)", uint8(c))
}

// A Mask selects which units write a notification (RMA-5). Any mask is accepted; a bit without a
// unit in the operation has no effect. An operation produces at most one requester notification. If
// there was a fault, that notification reports it, whatever the mask, and there are no others.
type Mask uint8

// The notification bits in the order of Table 3.1.
const (
	NotifyResponder Mask = 1 << iota
	NotifyCompleter
	NotifyRequester
)

// An RMADescriptor describes one operation (RMA-2). On the wire it is 24 bytes.
type RMADescriptor struct {
	Command Command
	Mask    Mask
	To      Address // the target node and the VPID that owns the remote window
	Length  int     // bytes; unused by ImmediatePut
	Local   NLA     // source of a PUT, sink of a GET; unused by ImmediatePut
	Remote  NLA     // sink of a PUT, source of a GET

	// ImmediatePut writes those bytes of Data (little endian, byte i at
	// Remote+i) whose bit i is set in Enable: 72 bits in all (RMA-4). Its
	// range in the window ends with the last byte that is written.
	Data   uint64
	Enable uint8
}

// Check returns nil if the descriptor is legal, and ErrRange or ErrLength otherwise.
func (d *RMADescriptor) Check() error {
	switch {
	case d.Command < Put || d.Command > ImmediatePut || d.Mask > 7 || !d.To.VPID.Valid():
		return ErrRange
	case d.Command == ImmediatePut:
		if d.Enable == 0 {
			return ErrLength
		}
	case d.Length < 1 || d.Length > RMAMaxLength:
		return ErrLength
	}
	return nil
}

// Encode returns the 24 bytes as three words. word0: node[15:0] VPID[25:16] command[29:26]
// mask[32:30] length-1[55:33] enable[63:56]. word1: Local, or the data of an immediate PUT. word2:
// Remote.
func (d *RMADescriptor) Encode() [3]uint64 {
	w0 := uint64(d.To.Node) | uint64(d.To.VPID&0x3ff)<<16 | uint64(d.Command&0xf)<<26 |
		uint64(d.Mask&7)<<30
	if d.Command == ImmediatePut {
		return [3]uint64{w0 | uint64(d.Enable)<<56, d.Data, uint64(d.Remote)}
	}
	return [3]uint64{w0 | uint64((d.Length-1)&(1<<23-1))<<33, uint64(d.Local), uint64(d.Remote)}
}

// DecodeRMADescriptor is the inverse of Encode; ok is false for words that Encode cannot return for
// a legal descriptor.
func DecodeRMADescriptor(w [3]uint64) (d RMADescriptor, ok bool) {
	d = RMADescriptor{
		Command: Command(w[0] >> 26 & 0xf),
		Mask:    Mask(w[0] >> 30 & 7),
		To:      Address{NodeID(w[0]), VPID(w[0] >> 16 & 0x3ff)},
		Remote:  NLA(w[2]),
	}
	if d.Command == ImmediatePut {
		d.Enable, d.Data = uint8(w[0]>>56), w[1]
	} else {
		d.Local, d.Length = NLA(w[1]), int(w[0]>>33&(1<<23-1))+1
	}
	return d, d.Encode() == w && d.Check() == nil
}

// A Kind is the unit that wrote a notification.
type Kind uint8

// The kinds of notifications.
const (
	KindRequester Kind = iota + 1
	KindResponder
	KindCompleter
)

func (k Kind) String() string {
	switch k {
	case KindRequester:
		return "requester"
	case KindResponder:
		return "responder"
	case KindCompleter:
		return "completer"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// A Fault is the error code of a notification.
type Fault uint8

// The faults. All but FaultNone arrive in requester notifications. All but FaultLink mean that
// nothing was read or written.
const (
	FaultNone   Fault = iota
	FaultStale        // the NLA is not registered (any more)
	FaultRange        // the operation leaves the window
	FaultVPID         // the window belongs to another VPID, here or there
	FaultRights       // the window does not allow this access
	FaultNode         // the target node is unknown or went away before the operation began
	// the target, or the way to it, was lost during the operation (NET-8); a part may have
	// been written
	FaultLink
	FaultMemory // the target could not give access: out of memory or descriptors
	faultEnd
)

var faultNames = [...]string{"none", "stale NLA", "out of range", "foreign VPID", "missing right",
	"no such node", "link failed", "out of memory"}

func (f Fault) String() string {
	if int(f) < len(faultNames) {
		return faultNames[f]
	}
	return fmt.Sprintf("fault(%d)", uint8(f))
}

// A Notification reports one step of an operation (RMA-6). On the wire and in
// queues it is two words: word0 command[3:0] kind[5:4] fault[13:6] VPID[23:14]
// node[39:24] count[63:40], word1 Local.
type Notification struct {
	Command Command
	Kind    Kind
	Fault   Fault
	Peer    Address // the other side of the operation
	Local   NLA     // RMA-7: here; requester: the start, others: the last packet's address
	Count   int     // bytes of the operation; of an immediate PUT: bytes enabled
}

// Encode returns the notification as two words.
func (n *Notification) Encode() [2]uint64 {
	return [2]uint64{
		uint64(n.Command&0xf) | uint64(n.Kind&3)<<4 | uint64(n.Fault)<<6 |
			uint64(n.Peer.VPID&0x3ff)<<14 | uint64(n.Peer.Node)<<24 | uint64(n.Count&0xffffff)<<40,
		uint64(n.Local),
	}
}

// DecodeNotification is the inverse of Encode; ok is false when a field is
// outside its range.
func DecodeNotification(w [2]uint64) (n Notification, ok bool) {
	n = Notification{
		Command: Command(w[0] & 0xf),
		Kind:    Kind(w[0] >> 4 & 3),
		Fault:   Fault(w[0] >> 6),
		Peer:    Address{NodeID(w[0] >> 24), VPID(w[0] >> 14 & 0x3ff)},
		Local:   NLA(w[1]),
		Count:   int(w[0] >> 40),
	}
	ok = n.Command >= Put && n.Command <= ImmediatePut && n.Kind != 0 && n.Fault < faultEnd &&
		n.Peer.VPID.Valid() && n.Count >= 1 && n.Count <= RMAMaxLength
	return n, ok
}

// RMA is an open RMA port.
type RMA interface {
	// Address returns the port's own address.
	Address() Address

	// Register makes memory reachable under a network logical address for
	// operations on this port's VPID, here and from other nodes.
	Register(m Memory, w WindowSpec) (Window, error)

	// Post starts an operation. It returns nil if the operation was accepted; it may be
	// complete already. It returns ErrFull if there is no room for it or its notifications,
	// ErrRange or ErrLength for an illegal descriptor, or ErrClosed. A requester notification
	// with a Fault reports everything else.
	Post(d *RMADescriptor) error

	// Poll takes up to len(into) notifications and returns how many. It is FIFO per source and
	// fair among sources, and never blocks.
	Poll(into []Notification) int

	// Close deregisters the port's windows and frees the VPID.
	Close() error
}

// InPlace is implemented by RMA ports for which peers' memory is mapped in this process.
type InPlace interface {
	// GetInPlace does a GET whose sink is a function. Before it returns, it calls use with the
	// source bytes where they lie. use must not keep them, must not close the port or its node,
	// and must expect that a hostile peer changes the bytes meanwhile. The completer
	// notification carries d.Local. If use returns an error it is not called again; the
	// operation still completes, and GetInPlace returns the error. That should not be an error
	// of this package, or the caller cannot tell it from a refusal. A window of several
	// segments leads to one call per contiguous piece.
	//
	// The responder's notification raises no interrupt: a responder that sleeps until its
	// memory is free would otherwise wake for each operation, to get one piece back. The
	// requester calls Raise after as many operations as it sees fit.
	GetInPlace(d *RMADescriptor, use func(src []byte) error) error

	// Raise raises the interrupt that GetInPlace has not raised at a port.
	Raise(to Address)
}
