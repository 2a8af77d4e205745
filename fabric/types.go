package fabric

import "fmt"

// A NodeID names a node: 64 segments of 1024 nodes (NET-5).
type NodeID uint16

// NodeAny asks for the lowest free ID where a NodeID is chosen. It is also
// the broadcast pattern of the routing tables, so no node can have it.
const NodeAny NodeID = 0xffff

// MaxNodeID is the highest ID a node can have.
const MaxNodeID NodeID = NodeAny - 1

// Segment returns the index into the global routing table.
func (n NodeID) Segment() int { return int(n >> 10) }

// Local returns the index into the local routing table.
func (n NodeID) Local() int { return int(n & 0x3ff) }

// A VPID is a virtual process ID. The field is 10 bits wide, the legal values
// are 0 to 255, separately for VELO and RMA (VPD-1).
type VPID uint16

const (
	// VPIDCount is the number of VPIDs of each unit of a node.
	VPIDCount = 256
	// VPIDAny asks for the lowest free VPID.
	VPIDAny VPID = 0x3ff
)

// Valid reports whether v can name a port.
func (v VPID) Valid() bool { return v < VPIDCount }

// An Address names a port of one unit: the node and the VPID there.
type Address struct {
	Node NodeID
	VPID VPID
}

func (a Address) String() string { return fmt.Sprintf("%d/%d", a.Node, a.VPID) }

// A Group is a multicast group, 0 to 63 (NET-6).
type Group uint8

const (
	// GroupCount is the number of groups.
	GroupCount = 64
	// GroupAll has every node as a member, always.
	GroupAll Group = 63
)

// Valid reports whether g names a group.
func (g Group) Valid() bool { return g < GroupCount }

// A Unit is a functional unit of the NIC that has ports.
type Unit uint8

// The units with ports.
const (
	UnitVELO Unit = iota
	UnitRMA
)

func (u Unit) String() string {
	switch u {
	case UnitVELO:
		return "velo"
	case UnitRMA:
		return "rma"
	}
	return fmt.Sprintf("unit(%d)", uint8(u))
}
