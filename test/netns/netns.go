// Package netns gives tests network namespaces of their own. It wraps package [exnet/exn/netns]:
// instead of returning errors it ends the test.
//
// What it makes disappears when the test ends, and also after a panic, an interrupt or a kill, with
// this process. Processes started in a namespace die with this one.
//
//	a, b := netns.New(t), netns.New(t)
//	netns.Veth(t, netns.End{NS: a, Link: "to-b", Addr: []string{"10.1.0.1/24"}},
//		netns.End{NS: b, Link: "to-a", Addr: []string{"10.1.0.2/24"}})
//	a.Do(t, func() { ln, err = net.Listen("tcp", "10.1.0.1:0") })
//	b.Start(cmd)
//
// To look into a namespace while a test hangs: nsenter --net=PATH, with the PATH that String
// returns.
//
// Making namespaces needs root (CAP_SYS_ADMIN). Tests skip without it.
package netns

import (
	"errors"
	"os/exec"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/exn/netns"
)

// NetNS is a network namespace.
type NetNS struct{ ns *netns.NS }

// New makes a network namespace with the loopback interface up, and releases it when the test ends.
// It skips the test where namespaces are not permitted.
func New(tb testing.TB) *NetNS {
	tb.Helper()
	ns, err := netns.New()
	if errors.Is(err, unix.EPERM) {
		tb.Skip("needs root to make network namespaces")
	}
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ns.Close() })
	return &NetNS{ns}
}

// String returns a path by which other processes can open the namespace while the test runs.
func (ns *NetNS) String() string { return ns.ns.String() }

// Do calls f inside the namespace. Sockets belong to it if f itself makes them. Goroutines that f
// starts run outside, and so do those of a net.Dial by name. f may end the test.
func (ns *NetNS) Do(tb testing.TB, f func()) {
	tb.Helper()
	if err := ns.ns.Do(func() error { f(); return nil }); err != nil {
		tb.Fatal(err)
	}
}

// Start starts cmd inside the namespace. If this process dies first, the command is killed.
func (ns *NetNS) Start(cmd *exec.Cmd) error {
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = new(syscall.SysProcAttr)
	}
	cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	return ns.ns.Start(cmd)
}

// End is one end of a link.
type End struct {
	NS   *NetNS
	Link string   // the name of the interface
	MTU  int      // 0: the kernel's default, 1500
	Addr []string // addresses with their prefix lengths
}

func (e End) end() netns.End { return netns.End{NS: e.NS.ns, Link: e.Link, MTU: e.MTU, Addr: e.Addr} }

// Veth joins two namespaces by a pair of virtual Ethernet interfaces, both up. Their addresses are
// usable at once, because there is no duplicate address detection.
func Veth(tb testing.TB, a, b End) {
	tb.Helper()
	if err := netns.Veth(a.end(), b.end()); err != nil {
		tb.Fatal(err)
	}
}

// Bridge makes an Ethernet bridge.
func Bridge(tb testing.TB, e End) {
	tb.Helper()
	if err := netns.Bridge(e.end()); err != nil {
		tb.Fatal(err)
	}
}

// Plug joins a namespace to a bridge by a veth pair. port is the name of the end at the bridge.
func Plug(tb testing.TB, bridge End, port string, e End) {
	tb.Helper()
	if err := netns.Plug(bridge.end(), port, e.end()); err != nil {
		tb.Fatal(err)
	}
}

// Cookie returns the number by which the kernel identifies the namespace.
func (ns *NetNS) Cookie(tb testing.TB) uint64 {
	tb.Helper()
	cookie, err := ns.ns.Cookie()
	if err != nil {
		tb.Fatal(err)
	}
	return cookie
}
