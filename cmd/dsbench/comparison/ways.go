package comparison

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
)

// A way is how a path is made.
type way struct {
	name     string
	what     string
	standard bool // also without a sweep
	carries  func(l load, size int) bool
	setting  *report.Setting // what it differs in from others of its name
	open     func(context.Context, *Plan) (carrier, error)
}

// key tells ways apart.
func (w way) key() string {
	if w.setting == nil {
		return w.name
	}
	return w.name + ", " + w.setting.Of + " " + w.setting.String()
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

// ways are all there are.
var ways = []way{
	{reference, "kernel TCP over loopback", true, everything, nil, func(_ context.Context, p *Plan) (carrier, error) { return &pumped{plan: p, address: loopback}, nil }},
	{"unix", "an AF_UNIX stream", true, everything, nil, openUnix},
	{"veth", "kernel TCP over a veth pair, MTU 1500", true, everything, nil, between(func(*Plan) (*path.Path, error) { return path.Veth(vethMTU) })},
	{"exn0", "kernel TCP over exn0, MTU 65,535", true, everything, nil, exn("exn0", "--mtu=65535")},
	{"exn0-irq", "the same, handling each interrupt, no NAPI", false, everything, nil, exn("exn0-irq", "--mtu=65535", "--mode=irq")},
	{"exn0-nospin", "the same, sleeping as soon as there is nothing to do", false, everything, nil, exn("exn0-nospin", "--mtu=65535", "--busy-poll=0s")},
	{"exn0-mtu1500", "kernel TCP over exn0, MTU 1500", false, everything, nil, exn("exn0-mtu1500", "--mtu=1500")},
	{"ds-preload", "TCP over loopback with libextds.so preloaded", true, everything, nil, preload()},
	{"ds-go", "TCP over loopback by a Go program with package directsockets", true, everything, nil, openGo},
	{"fabric", "VELO and RMA of package fabric/shm: messages up to 120 bytes, PUTs into a ring of four buffers, every byte read", true, messagesAndPuts, nil, openFabric},
	{"tcp-iperf3", "kernel TCP over loopback by iperf3", true, only("stream", block), nil, outside(workload.Library, map[string]string{"stream": workload.Stream})},
	{"tcp-sockperf", "kernel TCP over loopback by sockperf", true, only("rr", message), nil, outside(workload.Library, map[string]string{"rr": workload.Ping})},
	{"pasta", "kernel TCP from a namespace to the host's loopback through pasta", false, everything, nil, usermode(path.Pasta)},
	{"slirp4netns", "the same through slirp4netns", false, everything, nil, usermode(path.Slirp4netns)},
	{"wireguard-go", "kernel TCP between two through wireguard-go, encrypted, MTU 1420", false, everything, nil,
		betweenWith(func(ctx context.Context, _ *Plan) (*path.Path, error) { return path.WireGuard(ctx) })},
	{"ucx", "UCX over shared memory, by ucx_perftest", false, either(only("stream", block), only("rr", message)), nil,
		outside(workload.Peers, map[string]string{"stream": workload.UCXStream, "rr": workload.UCXPing})},
	{"libfabric", "libfabric over its provider shm, by fi_pingpong", false, only("rr", message), nil, outside(workload.Peers, map[string]string{"rr": workload.LibfabricPing})},
}

// everything is what paths with sockets carry.
func everything(load, int) bool { return true }

func either(a, b func(load, int) bool) func(load, int) bool {
	return func(l load, n int) bool { return a(l, n) || b(l, n) }
}

// only is what a tool measures that is measured here, too.
func only(name string, size int) func(load, int) bool {
	return func(l load, n int) bool { return l.name == name && n == size }
}

// Paths are the names of the ways, with sweep also of those that only a sweep has.
func Paths(sweep bool) (names []string) {
	for _, w := range ways {
		names = append(names, w.name)
	}
	for _, l := range loads(sweep) {
		for _, w := range l.ways {
			if !slices.Contains(names, w.name) {
				names = append(names, w.name)
			}
		}
	}
	return names
}

// Standard are the names of those that `dsbench` measures without being asked.
func Standard() (names []string) {
	for _, w := range ways {
		if w.standard {
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

// usermode makes a way from a namespace to the host's loopback.
func usermode(u path.Usermode) func(context.Context, *Plan) (carrier, error) {
	return func(ctx context.Context, p *Plan) (carrier, error) {
		made, err := u.Open(ctx)
		if err != nil {
			return nil, rootless(err)
		}
		w := &pumped{plan: p, address: loopback, dial: made.Ends[1].Addr.String(), path: made}
		if err := w.enter(); err != nil {
			w.Close()
			return nil, err
		}
		return w, nil
	}
}

// rootless says what helps who may not make namespaces.
func rootless(err error) error {
	if errors.Is(err, fs.ErrPermission) && !errors.As(err, new(path.NoNamespace)) {
		return fmt.Errorf("needs root, for network namespaces: run it with sudo (%w)", err)
	}
	return err
}

// between makes a way between two namespaces.
func between(open func(*Plan) (*path.Path, error)) func(context.Context, *Plan) (carrier, error) {
	return betweenWith(func(_ context.Context, p *Plan) (*path.Path, error) { return open(p) })
}

// betweenWith is between for what may have to be fetched first.
func betweenWith(open func(context.Context, *Plan) (*path.Path, error)) func(context.Context, *Plan) (carrier, error) {
	return func(ctx context.Context, p *Plan) (carrier, error) {
		made, err := open(ctx, p)
		if err != nil {
			return nil, rootless(err)
		}
		w := &pumped{plan: p, address: made.Ends[1].Addr.String(), path: made}
		if err := w.enter(); err != nil {
			w.Close()
			return nil, err
		}
		return w, nil
	}
}
