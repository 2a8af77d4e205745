package exn

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/test/netns"
)

// Link is the name of the interface in every node.
const Link = "exn0"

// Options describe a fleet. The zero value means two nodes with TUNs and the daemon's defaults.
type Options struct {
	Nodes   int      // 0: two
	MTU     []int    // of each node, the last also for all further nodes; 0: the daemon's default
	TAP     bool     // TAPs instead of TUNs
	Bare    bool     // without addresses
	Flags   []string // further flags of exn-tun up, for every node
	Capture bool     // record all frames as evidence; only for tests with few frames
}

// A Fleet is a number of nodes on one fabric.
type Fleet struct {
	testing.TB
	Nodes  []*Node
	Fabric string // the fabric directory
	opt    Options
	dir    string // for files of the fleet
	veth   bool
}

// A Node is a namespace with an exn0.
type Node struct {
	testing.TB
	NS         *netns.NetNS
	ID         int // 1, 2, …, also on the fabric
	IPv4, IPv6 netip.Addr
	MTU        int // as requested; 0: the daemon's default
	fleet      *Fleet

	mu      sync.Mutex
	daemon  *Daemon
	dead    []*Daemon
	capture *Daemon
	servers int
}

// wireVariable names the environment variable that chooses what joins the nodes.
const wireVariable = "EXNET_TEST_WIRE"

// patience is how long anything may take whose duration is not under test: far longer than on the
// slowest machine.
const patience = 2 * time.Minute

// Up brings a fleet up, and takes it down when the test ends. It skips the test where namespaces
// are not permitted.
func Up(tb testing.TB, opt Options) *Fleet {
	tb.Helper()
	if opt.Nodes == 0 {
		opt.Nodes = 2
	}
	f := &Fleet{TB: tb, opt: opt, dir: tb.TempDir(), veth: os.Getenv(wireVariable) == "veth"}
	f.Fabric = filepath.Join(f.dir, "fabric")
	for i := range opt.Nodes {
		f.Nodes = append(f.Nodes, f.node(i+1))
	}
	tb.Cleanup(f.evidence) // before the daemons are gone: the cleanup registered last runs first
	if f.veth {
		f.wire()
		return f
	}
	// Start all at once: each waits a second or two to claim its addresses.
	for _, n := range f.Nodes {
		n.start()
	}
	for _, n := range f.Nodes {
		n.daemon.awaitReady()
	}
	for _, n := range f.Nodes {
		n.startCapture()
	}
	return f
}

func (f *Fleet) node(id int) *Node {
	n := &Node{TB: f.TB, NS: netns.New(f.TB), ID: id, fleet: f,
		IPv4: netip.AddrFrom4([4]byte{10, 87, 0, byte(id)}),
		IPv6: netip.AddrFrom16([16]byte{0xfd, 0x87, 15: byte(id)})}
	if k := len(f.opt.MTU); k > 0 {
		n.MTU = f.opt.MTU[min(id, k)-1]
	}
	f.Cleanup(n.end)
	return n
}

// prefixes returns the addresses with the length of their subnet.
func (n *Node) prefixes() []string {
	if n.fleet.opt.Bare {
		return nil
	}
	if n.MTU != 0 && n.MTU < 1280 {
		return []string{n.IPv4.String() + "/24"} // no IPv6 below that MTU
	}
	return []string{n.IPv4.String() + "/24", n.IPv6.String() + "/64"}
}

// OnlyExn skips the rest of a test that needs a feature which veth pairs lack.
func (f *Fleet) OnlyExn(why string) {
	f.Helper()
	if f.veth {
		f.Skipf("veth in place of exn0: %s", why)
	}
}

// IsVeth reports whether veth pairs join the nodes.
func (f *Fleet) IsVeth() bool { return f.veth }

// flags returns the arguments of exn-tun up.
func (n *Node) flags() []string {
	args := []string{"up", "--fabric", n.fleet.Fabric, "--node", strconv.Itoa(n.ID), "--name", Link}
	for _, p := range n.prefixes() {
		args = append(args, "--addr", p)
	}
	if n.MTU != 0 {
		args = append(args, "--mtu", strconv.Itoa(n.MTU))
	}
	if n.fleet.opt.TAP {
		args = append(args, "--tap")
	}
	return append(args, n.fleet.opt.Flags...)
}

// Carrier reports whether the kernel sees a carrier on the node's interface.
func (n *Node) Carrier() (on bool) {
	n.Helper()
	n.NS.Do(n, func() {
		link, err := netlink.LinkByName(Link)
		if err != nil {
			n.Fatalf("%v: %v", n, err)
		}
		on = link.Attrs().RawFlags&unix.IFF_LOWER_UP != 0 // IFF_RUNNING follows some time later
	})
	return on
}

// String names the node in logs.
func (n *Node) String() string { return fmt.Sprintf("node %d", n.ID) }
