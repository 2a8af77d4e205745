package comparison

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/workload"
)

// A way is how a path is made.
type way struct {
	name     string
	what     string
	standard bool // also without a sweep
	carries  func(l load, size int) bool
	open     func(context.Context, *Plan) (carrier, error)
}

// A carrier is a path that stands: it carries one load at a time.
type carrier interface {
	// run makes one run of about the plan's length. spent is the CPU time of the processes
	// that it has started and that have ended.
	run(ctx context.Context, l load, size int) (o outcome, spent spending, err error)

	// daemons are processes that carry and that go on.
	daemons() []int

	Close() error
}

// reference is the way that others are compared with.
const reference = "tcp"

const vethMTU = 1500

// ways are all there are. An implementation of EXT-DS that programs are linked with
// goes beside ds-preload, as ds-go.
var ways = []way{
	{reference, "kernel TCP over loopback", true, everything, func(_ context.Context, p *Plan) (carrier, error) { return &pumped{plan: p, address: loopback}, nil }},
	{"unix", "an AF_UNIX stream", true, everything, openUnix},
	{"veth", "kernel TCP over a veth pair, MTU 1500", true, everything, between(func(*Plan) (*path.Path, error) { return path.Veth(vethMTU) })},
	{"exn0", "kernel TCP over exn0, MTU 65,535", true, everything, exn("exn0", "--mtu=65535")},
	{"exn0-irq", "the same, handling each interrupt, no NAPI", false, everything, exn("exn0-irq", "--mtu=65535", "--mode=irq")},
	{"exn0-nospin", "the same, sleeping as soon as there is nothing to do", false, everything, exn("exn0-nospin", "--mtu=65535", "--busy-poll=0s")},
	{"exn0-mtu1500", "kernel TCP over exn0, MTU 1500", false, everything, exn("exn0-mtu1500", "--mtu=1500")},
	{"ds-preload", "TCP over loopback with libextds.so preloaded", true, everything, openPreload},
	{"fabric", "VELO and RMA of package fabric/shm: messages up to 120 bytes, PUTs into a ring of four buffers, every byte read", true, messagesAndPuts, openFabric},
	{"tcp-iperf3", "kernel TCP over loopback by iperf3", true, only("stream", block), outside(workload.Stream)},
	{"tcp-sockperf", "kernel TCP over loopback by sockperf", true, only("rr", message), outside(workload.Ping)},
}

// everything is what paths with sockets carry.
func everything(load, int) bool { return true }

// only is what a tool measures that is measured here, too.
func only(name string, size int) func(load, int) bool {
	return func(l load, n int) bool { return l.name == name && n == size }
}

// Paths are the names of the ways, or of those that are measured without being asked for.
func Paths(standard bool) (names []string) {
	for _, w := range ways {
		if !standard || w.standard {
			names = append(names, w.name)
		}
	}
	return names
}

func wayOf(name string) way {
	for _, w := range ways {
		if w.name == name {
			return w
		}
	}
	return way{}
}

func exn(name string, flags ...string) func(context.Context, *Plan) (carrier, error) {
	return func(ctx context.Context, p *Plan) (carrier, error) {
		if p.Daemon == "" {
			return nil, errors.New("no program exn-tun beside this one or in PATH: run make, or give its path with --daemon")
		}
		return between(func(p *Plan) (*path.Path, error) { return path.Exn(p.Daemon, name, flags...) })(ctx, p)
	}
}

// between makes a way between two namespaces.
func between(open func(*Plan) (*path.Path, error)) func(context.Context, *Plan) (carrier, error) {
	return func(_ context.Context, p *Plan) (carrier, error) {
		made, err := open(p)
		if errors.Is(err, fs.ErrPermission) {
			return nil, fmt.Errorf("needs root, for network namespaces: run it with sudo (%w)", err)
		}
		if err != nil {
			return nil, err
		}
		w := &pumped{plan: p, address: made.Ends[1].Addr.String(), path: made}
		if err := w.enter(); err != nil {
			w.Close()
			return nil, err
		}
		return w, nil
	}
}
