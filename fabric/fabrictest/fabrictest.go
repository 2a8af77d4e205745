// Package fabrictest is the conformance suite of the fabric contract: a backend conforms if [Run]
// passes on it.
//
// # How to use it
//
//	func TestConformance(t *testing.T) {
//		fabrictest.Run(t, fabrictest.Harness{
//			Fabric: func(t *testing.T) fabrictest.Attach {
//				f := newFabric(t.TempDir())
//				t.Cleanup(f.Close)
//				return f.Attach
//			},
//		})
//	}
//
// Each point is a subtest, named after the requirements that it tests, and gets a fresh fabric.
//
// # What it assumes
//
// The suite assumes nothing beyond package fabric. Operations may complete at once or much later;
// time may be real or virtual; a peer's memory need not be mapped. A test that waits sleeps on the
// port's interrupts, which tests those all the time, or checks again after a short sleep. The only
// time limit stops a hang.
//
// The suite does not test what the contract leaves open: the order of the requester and completer
// notifications of one GET, the depth of a queue, what counts as a source besides the node, and how
// a backend counts what only it has (cached translations, channels).
package fabrictest

import (
	"testing"
	"testing/synctest"
	"time"

	"exnet/fabric"
)

// Attach attaches a node to a fabric with the given ID, or the lowest free one (fabric.NodeAny).
type Attach func(id fabric.NodeID) (fabric.Node, error)

// A Harness describes a backend to the suite.
type Harness struct {
	// Fabric makes a fresh fabric without nodes. It cleans it up with t.Cleanup, which runs
	// after the suite has closed the nodes.
	Fabric func(t *testing.T) Attach

	// Virtual runs each point in a testing/synctest bubble, so that time limits cost no time.
	// The backend must never spin.
	Virtual bool

	// Allocates says why an operation may allocate memory. If it is empty, Send, Post and Poll
	// must not.
	Allocates string

	// Skip maps the names of points to the reasons why they cannot hold in this configuration.
	Skip map[string]string
}

// A point is one requirement that a backend must meet.
type point struct {
	name string
	run  func(*rig)
}

var points = []point{
	{"VEL-1 VEL-3 every size arrives as it was sent", veloSizes},
	{"VEL-2 illegal messages are refused", veloRefuses},
	{"VEL-4 order per source port and target port", veloOrder},
	{"VEL-4 back-pressure loses nothing", veloBackPressure},
	{"VEL-4 a blocked sender learns that its receiver went away", veloReceiverGone},
	{"VEL-4 what a sender that left had sent arrives", veloSenderGone},
	{"VEL-4 many senders share a receiver fairly", veloFairness},
	{"VEL-5 NET-6 multicast reaches the group and never the sender", multicastGroups},
	{"VEL-5 a full member loses its copy and it is counted", multicastFullMember},

	{"RMA-5 RMA-7 notifications of every mask", rmaMasks},
	{"RMA-2 illegal descriptors are refused", rmaRefuses},
	{"RMA-3 RMA-8 split vectors", rmaSplit},
	{"RMA-4 immediate PUT writes the enabled bytes", rmaImmediate},
	{"RMA-1 data is visible before its notification and before VELO", rmaVisibility},
	{"RMA-6 back-pressure loses no notification", rmaBackPressure},
	{"RMA-6 many sources of notifications are polled fairly", rmaFairness},
	{"RMA-1 GET in place", rmaInPlace},

	{"ATU-2 violations are notified and touch nothing", atuViolations},
	{"ATU-2 registration refuses", atuRegister},
	{"ATU-2 imported memory", atuImport},
	{"ATU-3 page lists as source and sink", atuPageLists},
	{"ATU-4 deregistering is deferred", atuDeferred},

	{"VPD-1 VPIDs", vpids},
	{"VPD-1 a reopened port gets nothing stale", vpidReopen},
	{"NET-1 a node talks to itself", ownNode},
	{"NET-5 node IDs", nodeIDs},
	{"NET-7 members come, go and come back", membership},

	{"REG-1 registers at home", registersLocal},
	{"REG-1 registers of another node", registersRemote},
	{"REG-2 counters are exact", counters},
	{"NET-8 a sound network counts no errors", soundLinks},

	{"VEL-6 interrupts", interrupts},
	{"VEL-6 one interrupt for several ports", interruptShared},
	{"VEL-6 an interrupt's descriptor can be polled", interruptFD},
	{"VEL-6 no wake-up is lost", interruptStress},

	{"closing twice, from anywhere, while in use", closing},
	{"no operation allocates", allocations},
}

// Run runs the suite on a backend.
func Run(t *testing.T, h Harness) {
	known := make(map[string]bool)
	for _, p := range points {
		known[p.name] = true
		t.Run(p.name, func(t *testing.T) {
			if why := h.Skip[p.name]; why != "" {
				t.Skip(why)
			}
			if h.Virtual {
				synctest.Test(t, func(t *testing.T) { p.run(newRig(t, h)) })
			} else {
				p.run(newRig(t, h))
			}
		})
	}
	for name := range h.Skip {
		if !known[name] {
			t.Errorf("the harness skips %q, which is no point of the suite", name)
		}
	}
}

// limit stops a hang. Nothing that works takes this long, even on a busy machine or a simulated
// network full of faults.
const limit = time.Minute

// settling is how long the suite waits for something that should not happen.
func (r *rig) settling() time.Duration {
	if r.virtual {
		return time.Second
	}
	return 20 * time.Millisecond
}
