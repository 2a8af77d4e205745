package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"exnet/exn"
	"exnet/exn/control"
	"exnet/exn/device"
	"exnet/fabric"
	"exnet/fabric/shm"
)

// Run brings the interface up and keeps it until a signal comes. What was opened is
// closed in the opposite order, on every way out.
func (c *upCommand) Run(errs messages) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP)
	defer stop()
	// Who read the log may go; the interface stays.
	signal.Ignore(syscall.SIGPIPE)
	defer signal.Reset(syscall.SIGPIPE)
	if len(c.Route) > 0 {
		return c.route(ctx, errs)
	}
	d, err := c.open(errs)
	if err != nil {
		return err
	}
	defer func() { err = d.close(err) }()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		d.watchDirectory(ctx)
	}()
	announced := make(chan struct{})
	go func() {
		defer close(announced)
		if err := d.announce(ctx, errs); err != nil {
			cancel(err)
		}
	}()
	err = d.iface.Run(ctx)
	cancel(nil)
	<-announced
	<-watched
	if errors.Is(err, context.Canceled) {
		err = nil
	}
	return errors.Join(err, notifyManager("STOPPING=1"))
}

// A daemon is one interface and those who may ask about it.
type daemon struct {
	node    *shm.Node
	device  *device.TunTap
	iface   *exn.Interface
	homes   *homes
	control *control.Server
	metrics *metricsServer
	netns   string
	log     *slog.Logger
}

func (c *upCommand) open(errs messages) (_ *daemon, err error) {
	d := &daemon{netns: c.Netns, log: c.logger(errs)}
	defer func() {
		if err != nil {
			err = d.close(err)
		}
	}()
	want := fabric.NodeAny
	if c.Node != nil {
		want = *c.Node
	}
	if d.node, err = shm.Attach(shm.Config{Dir: c.Fabric, Node: want}); err != nil {
		return nil, err
	}
	if d.device, err = device.Open(c.device(d.node.ID(), d.node.Dir())); err != nil {
		return nil, err
	}
	d.homes = newHomes(d.node.Dir(), c.Netns, d.log)
	settings := c.exn(d.node, d.log)
	settings.Held = d.homes.held
	if d.iface, err = exn.Open(settings, d.device); err != nil {
		return nil, err
	}
	asked := subject{d.node, d.state, d.iface}
	if d.control, err = asked.answer(); err != nil {
		return nil, err
	}
	if c.Metrics != "" {
		if d.metrics, err = serveMetrics(c.Metrics, metricsOf([]subject{asked}), d.log); err != nil {
			return nil, err
		}
	}
	return d, nil
}

func (c *upCommand) logger(errs messages) *slog.Logger {
	level := slog.LevelWarn
	if c.Verbose {
		level = slog.LevelDebug
	}
	return slog.New(slog.NewTextHandler(errs, &slog.HandlerOptions{Level: level}))
}

// close takes everything back that was opened; after an error the fabric directory, too,
// if it is new and nobody else is in it.
func (d *daemon) close(err error) error {
	errs := []error{err}
	if d.metrics != nil {
		errs = append(errs, d.metrics.Close())
	}
	if d.control != nil {
		errs = append(errs, d.control.Close())
	}
	if d.iface != nil {
		errs = append(errs, d.iface.Close())
	}
	if d.homes != nil {
		d.homes.close()
	}
	if d.device != nil {
		errs = append(errs, d.device.Close())
	}
	switch {
	case d.node == nil:
	case err != nil:
		errs = append(errs, d.node.Discard())
	default:
		errs = append(errs, d.node.Close())
	}
	return errors.Join(errs...)
}

// announce says that the interface is ready, once it is.
func (d *daemon) announce(ctx context.Context, errs messages) error {
	select {
	case <-d.iface.Ready():
	case <-ctx.Done():
		return nil
	}
	if err := d.device.WaitRunning(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	d.warnOfStrangers()
	s := d.iface.Snapshot()
	held := []string{fmt.Sprintf("node %d of %s", s.Node, d.node.Dir()), s.MAC, fmt.Sprintf("MTU %d", s.MTU)}
	for _, a := range s.Addresses {
		held = append(held, a.Prefix.String())
	}
	verb := "is up"
	if s.Adopted {
		verb = "was left by a crash and is up again"
	}
	fmt.Fprintf(errs, "exn-tun: ready: %s %s: %s\n", s.Name, verb, strings.Join(held, ", "))
	return notifyManager("READY=1\nSTATUS=" + s.Name + " " + verb)
}

// watchDirectory says when the fabric directory is removed. The nodes that have met go on, but those
// that start later make another directory of that name, and neither finds the other.
func (d *daemon) watchDirectory(ctx context.Context) {
	ours, err := os.Stat(d.node.Dir())
	if err != nil {
		return
	}
	every := time.NewTicker(time.Second)
	defer every.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-every.C:
		}
		if now, err := os.Stat(d.node.Dir()); errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(ours, now) {
			d.log.Error("the fabric directory was removed: nodes that start from now on do not find this one; stop it and start it again", "dir", d.node.Dir())
			return
		}
	}
}

// warnOfStrangers names the nodes that are attached but speak another version.
func (d *daemon) warnOfStrangers() {
	nodes, err := shm.List(d.node.Dir())
	if err != nil {
		d.log.Warn("cannot list the nodes of the fabric", "err", err)
	}
	peers := d.node.Peers()
	for _, n := range nodes {
		if n.Node != d.node.ID() && !slices.Contains(peers, n.Node) {
			d.log.Warn("a node is attached but does not talk to us; use the same version of exnet everywhere", "node", n.Node, "holder", n)
		}
	}
}

// state asks all parts.
func (d *daemon) state() (state, error) {
	link, err := d.device.Status()
	if err != nil {
		return state{}, err
	}
	return state{Version: version(), PID: os.Getpid(), Fabric: d.node.Dir(), Namespace: d.netns, Link: link,
		Interface: d.iface.Snapshot(), Registers: registers(d.node), Process: thisProcess()}, nil
}
