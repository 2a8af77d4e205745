package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"exnet/exn"
	"exnet/exn/control"
	"exnet/exn/device"
	"exnet/fabric"
	"exnet/fabric/shm"
	"exnet/mtu"
)

// routePortFlag is a further port of a router: DIR[,addr=ADDR/BITS…][,node=N][,mtu=N]
// [,via=PREFIX=ADDR…].
type routePortFlag struct {
	dir       string
	node      fabric.NodeID
	addresses []netip.Prefix
	routes    []exn.Route
	mtu       mtu.Link
}

// UnmarshalText implements encoding.TextUnmarshaler.
func (r *routePortFlag) UnmarshalText(text []byte) error {
	words := strings.Split(string(text), ",")
	*r = routePortFlag{dir: words[0], node: fabric.NodeAny}
	if r.dir == "" || strings.Contains(r.dir, "=") {
		return fmt.Errorf("%q does not begin with a fabric directory; write it like /run/b,addr=10.2.0.1/24", text)
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		var err error
		switch key {
		case "addr":
			var a addressFlag
			err = a.UnmarshalText([]byte(value))
			r.addresses = append(r.addresses, a.Prefix)
		case "via":
			var v routeFlag
			err = v.UnmarshalText([]byte(value))
			r.routes = append(r.routes, v.Route)
		case "node":
			var n uint64
			if n, err = strconv.ParseUint(value, 10, 16); err != nil || fabric.NodeID(n) > fabric.MaxNodeID {
				err = fmt.Errorf("node %q: IDs go from 0 to %d", value, fabric.MaxNodeID)
			}
			r.node = fabric.NodeID(n)
		case "mtu":
			var n int
			if n, err = strconv.Atoi(value); err == nil {
				r.mtu, err = mtu.CheckLink(n)
			}
		default:
			err = fmt.Errorf("unknown word %q; there are addr, node, mtu and via", word)
		}
		if err != nil {
			return fmt.Errorf("port %q: %w", text, err)
		}
	}
	if len(r.addresses) == 0 {
		return fmt.Errorf("port %q has no address; write it like /run/b,addr=10.2.0.1/24", text)
	}
	return nil
}

// checkRoute refuses flags of an interface, of which a router has none.
func (c *upCommand) checkRoute() error {
	switch {
	case len(c.Addr) == 0:
		return errors.New("--route: the router needs an address on --fabric, too: give it by --addr")
	case c.Netns != "" || c.TAP || c.Name != device.DefaultName:
		return errors.New("--route makes no interface: leave out --netns, --name and --tap")
	}
	seen := map[string]bool{fabricName(c.Fabric): true}
	for _, r := range c.Route {
		name := fabricName(r.dir)
		if seen[name] {
			return fmt.Errorf("--route %s: the router has a port on that fabric already; give each fabric one port", r.dir)
		}
		seen[name] = true
	}
	return nil
}

// fabricName is one name for a fabric directory, which may not exist yet.
func fabricName(dir string) string {
	if dir == "" {
		dir = shm.DefaultDir()
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	if whole, err := filepath.Abs(dir); err == nil {
		dir = whole
	}
	return dir
}

// A router is a running exn.Router and those who may ask about it.
type router struct {
	nodes   []*shm.Node // of its ports
	router  *exn.Router
	control []*control.Server
	metrics *metricsServer
}

// route runs a router until ctx is done.
func (c *upCommand) route(ctx context.Context, errs messages) (err error) {
	r := &router{}
	defer func() { err = r.close(err) }()
	said, err := c.openRouter(ctx, r, c.logger(errs))
	switch {
	case err != nil && ctx.Err() != nil: // asked to end while claiming addresses
		return notifyManager("STOPPING=1")
	case err != nil:
		return err
	}
	fmt.Fprintf(errs, "exn-tun: ready: routing between %s\n", strings.Join(said, " and "))
	if err = notifyManager("READY=1\nSTATUS=routing"); err == nil {
		<-ctx.Done()
	}
	return errors.Join(err, notifyManager("STOPPING=1"))
}

// openRouter opens everything, and returns what to say of each port.
func (c *upCommand) openRouter(ctx context.Context, r *router, log *slog.Logger) (said []string, err error) {
	first := routePortFlag{dir: c.Fabric, node: fabric.NodeAny, addresses: c.addresses(), mtu: mtu.Link(c.mtu())}
	if c.Node != nil {
		first.node = *c.Node
	}
	for _, v := range c.Via {
		first.routes = append(first.routes, v.Route)
	}
	var ports []exn.RouterPort
	for _, p := range append([]routePortFlag{first}, c.Route...) {
		at, err := shm.Attach(shm.Config{Dir: p.dir, Node: p.node})
		if err != nil {
			return nil, err
		}
		r.nodes = append(r.nodes, at)
		ports = append(ports, exn.RouterPort{Fabric: at, NodeConfig: exn.NodeConfig{
			Addresses: p.addresses, Routes: p.routes, MTU: p.mtu, Prefix: c.MACPrefix.Prefix, Eager: c.Eager, Log: log}})
		said = append(said, fmt.Sprintf("%s (node %d of %s)", strings.Trim(fmt.Sprint(p.addresses), "[]"), at.ID(), at.Dir()))
	}
	if r.router, err = exn.NewRouter(ctx, ports...); err != nil {
		return nil, err
	}
	var subjects []subject
	for port, at := range r.nodes {
		s := subject{at, func() (state, error) { return routerState(r.router.Snapshot(port), at), nil }, frames{r.router, port}}
		server, err := s.answer()
		if err != nil {
			return nil, err
		}
		r.control, subjects = append(r.control, server), append(subjects, s)
	}
	if c.Metrics != "" {
		r.metrics, err = serveMetrics(c.Metrics, metricsOf(subjects), log)
	}
	return said, err
}

// close takes everything back that was opened; after an error the fabric directories, too,
// that are new and nobody else is in.
func (r *router) close(err error) error {
	errs := []error{err}
	if r.metrics != nil {
		errs = append(errs, r.metrics.Close())
	}
	for _, s := range r.control {
		errs = append(errs, s.Close())
	}
	if r.router != nil {
		errs = append(errs, r.router.Close())
	}
	for _, n := range r.nodes {
		if err != nil {
			errs = append(errs, n.Discard())
		} else {
			errs = append(errs, n.Close())
		}
	}
	return errors.Join(errs...)
}

// frames are those of a router's port.
type frames struct {
	*exn.Router
	port int
}

// Capture implements capture.Source.
func (f frames) Capture(see func(*exn.CaptureFrame)) (stop func()) {
	return f.Router.Capture(f.port, see)
}

// routerState is the state of a port. There is no interface of the kernel: what is
// shown in its place is what the others on the fabric see.
func routerState(s exn.Snapshot, at *shm.Node) state {
	const flags = unix.IFF_UP | unix.IFF_BROADCAST | unix.IFF_RUNNING | unix.IFF_MULTICAST
	link := device.Status{Name: s.Name, Flags: flags, MTU: s.MTU, TxQueueLen: s.Settings.TXQueueLen, MAC: s.MAC}
	for _, a := range s.Addresses {
		link.Addresses = append(link.Addresses, device.Address{Prefix: a.Prefix})
	}
	return state{Version: version(), PID: os.Getpid(), Fabric: at.Dir(), Link: link, Interface: s,
		Registers: registers(at), Process: thisProcess()}
}
