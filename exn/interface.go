package exn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/mtu"
	"exnet/multicast"
	"exnet/napi"
)

// An Interface is one node's network interface. See the package comment.
type Interface struct {
	cfg    Config
	dev    device.Device
	tap    bool
	base   int // bytes of a frame before what the device calls a packet
	mac    arp.MAC
	start  time.Time
	stats  statistics
	mail   mailbox
	cache  *arp.Cache
	stop   func() // stops watching nodes
	ready  chan struct{}
	lineUp atomic.Bool // the carrier is up

	engine  *napi.Engine
	sources [4]*napi.Source // RMA, VELO, device, mailbox
	sleeper sleeper

	// The fields below belong to the loop.
	eth        *exteth.Engine
	device     deviceLine
	fabric     [2]*fabricLine // RMA, VELO
	resolver   *resolver      // nil on a TAP
	pending    *arp.Pending[waiting]
	pendingLen int
	membership *multicast.Membership
	groups     uint64 // of the fabric that the node is a member of
	addresses  []*address
	opened     bool
	held       []netip.Addr  // as last told to Config.Held
	doubted    time.Duration // when neighbours in doubt were last probed
	readAt     int           // where in a buffer packets are read to
	blocked    bool          // the device is not read because EXT-Eth has no room
	bursts     int           // bytes received in super-packets of UDP
	bursting   [2]bool       // of RMA, VELO: the last poll with work had some
	// the longest packet written to the device by the current poll of the fabric
	written    int
	longest    [2]int // of RMA, VELO: the same for the last poll with work
	reading    reading
	parts      device.PartsReader // nil: trains are not sent
	cut        []byte             // buffer for the packets that a big packet stands for
	follower   *follower          // nil: the loop follows no program, for the reason in followsNot
	followsNot string
	letters    letters
	scratch    []byte       // for frames that we make
	frame      []byte       // for private copies of received frames
	addrs      []netip.Addr // for lists of neighbours

	mu     sync.Mutex
	state  runState
	cancel context.CancelCauseFunc
	over   chan struct{} // closed when Run has returned
}

type runState uint8

const (
	idle runState = iota
	running
	finished
)

// Open makes an interface of a device. The caller keeps the device and closes it after the
// interface. No packet moves before Run.
func Open(cfg Config, dev device.Device) (_ *Interface, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	i := &Interface{
		cfg: cfg, dev: dev, tap: dev.Kind() == device.TAP, mac: cfg.Prefix.MAC(cfg.Node.ID()),
		start: time.Now(), ready: make(chan struct{}), over: make(chan struct{}),
		membership: multicast.NewMembership(), groups: 1 << fabric.GroupAll,
		scratch: make([]byte, 0, discoveryMost), frame: make([]byte, 0, discoveryMost),
	}
	link := mtu.Link(dev.MTU())
	if !i.tap {
		i.base = mtu.MACHeader
	}
	// The IP header begins a cache line, on a TUN and on a TAP.
	i.readAt = exteth.Headroom - mtu.MACHeader + i.base
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range slices.Backward(undo) {
				f()
			}
		}
	}()
	i.cache = arp.NewCache(cfg.Prefix, i.clock, func(a netip.Addr) {
		i.mail.post(func(l *letters) { l.changed = append(l.changed, a) })
	})
	i.mail.ring = func() {
		i.sources[3].Raise()
		i.sleeper.wake()
	}
	for _, p := range cfg.Addresses {
		i.addresses = append(i.addresses, &address{prefix: p})
	}
	if !i.tap {
		i.pending = arp.NewPending(i.dropPending)
		if link.IPv6() {
			own := netip.PrefixFrom(arp.LinkLocal(i.mac), 64)
			if !slices.Contains(cfg.Addresses, own) {
				i.addresses = append(i.addresses, &address{prefix: own})
			}
		}
		if i.resolver, err = newResolver(i.mac, link, i.cache, &i.mail); err != nil {
			return nil, err
		}
		undo = append(undo, i.resolver.close)
	}
	i.membership.SetAll(cfg.AllMulticast)

	var lines []*fabricLine
	for k := range i.fabric {
		irq, err := cfg.Node.NewInterrupt()
		if err != nil {
			return nil, fmt.Errorf("exn: interrupt: %w", err)
		}
		undo = append(undo, func() { _ = irq.Close() })
		i.fabric[k] = &fabricLine{irq: irq}
		lines = append(lines, i.fabric[k])
	}
	// Watch before the engine lists the nodes: one that joins in between is reported twice,
	// which is harmless, and never missed.
	i.stop = cfg.Node.Watch(func(ev fabric.Event) {
		i.mail.post(func(l *letters) { l.events = append(l.events, ev) })
	})
	undo = append(undo, i.stop)
	rma, velo := i.fabric[0], i.fabric[1]
	if i.eth, err = exteth.New(cfg.Node, exteth.Config{
		Receive: i.receive, Accept: i.membership.Accept,
		VELOIRQ: fabric.PortInterrupts{Receive: velo.irq, Transmit: velo.irq},
		RMAIRQ:  fabric.PortInterrupts{Receive: rma.irq, Transmit: rma.irq},
		Prefix:  cfg.Prefix, MTU: link, Caps: dev.Offloads(),
		Eager: cfg.Eager, MulticastEager: cfg.MulticastEager, Copy: cfg.Copy, Buffers: cfg.Buffers,
		BufferSize: i.bufferSize(),
	}); err != nil {
		return nil, err
	}
	i.offloadsChanged()
	undo = append(undo, func() { _ = i.eth.Close() })
	if err := i.addSources(); err != nil {
		return nil, err
	}
	if i.sleeper, err = newSleeper(dev, &i.device, lines); err != nil {
		return nil, err
	}
	return i, nil
}

// clock returns the time that everything in the interface uses.
func (i *Interface) clock() time.Duration { return time.Since(i.start) }

func (i *Interface) addSources() (err error) {
	if i.engine, err = napi.New(napi.Config{Mode: i.cfg.Mode, BusyPoll: i.cfg.BusyPoll, Clock: i.clock}); err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	rma, velo := i.fabric[0], i.fabric[1]
	for k, s := range []napi.Spec{
		{Name: "rma", Poller: poll(i.pollRMA), Line: rma, Budget: i.cfg.RMABudget, ITR: i.cfg.ITR},
		{Name: "velo", Poller: poll(i.pollVELO), Line: velo, Budget: i.cfg.VELOBudget, ITR: i.cfg.ITR},
		{Name: i.dev.Kind().String(), Poller: poll(i.pollDevice), Line: &i.device, Budget: i.cfg.DeviceBudget},
		{Name: "mailbox", Poller: poll(i.pollMailbox), Line: &i.mail},
	} {
		if i.sources[k], err = i.engine.Add(s); err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
	}
	i.device.more = i.more
	rma.source, velo.source, i.device.source = i.sources[0], i.sources[1], i.sources[2]
	return nil
}

// Run moves packets on the calling goroutine, which it locks to its thread, until ctx is done, and
// then returns the cause. It returns earlier if the device is gone (device.ErrGone), the fabric is
// gone (ErrFabric), another node uses an address (a *ConflictError), or Close was called
// (ErrClosed). It can be called once.
func (i *Interface) Run(ctx context.Context) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer napi.ShortSlice()()
	defer napi.SharpTimers()()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	i.mu.Lock()
	if i.state != idle {
		i.mu.Unlock()
		return fmt.Errorf("run: %w", ErrClosed)
	}
	i.state, i.cancel = running, cancel
	i.mu.Unlock()
	defer close(i.over)

	watch := make(chan struct{})
	go func() {
		defer close(watch)
		select {
		case <-i.cfg.Node.Done():
			cancel(ErrFabric)
		case <-ctx.Done():
		}
	}()

	if i.lineUp.Store(i.dev.Adopted()); !i.dev.Adopted() {
		i.setCarrier(false)
	}
	i.claimAll(i.clock())
	unfollow, err := i.watchAddresses()
	if err == nil {
		leave := i.followPrograms()
		err = i.engine.Run(ctx, (*timedSleeper)(i), napi.OSYield)
		leave()
		unfollow()
	}
	cancel(nil)
	<-watch
	i.setCarrier(false)

	i.mu.Lock()
	i.state = finished
	i.mu.Unlock()
	for _, f := range i.mail.close().asks {
		f()
	}
	return err
}

// SetOffloads switches the offloads that the device gives and takes, and tells the other nodes.
// They then complete in software what is no longer taken, or stop doing so. An offload that the
// kernel lacks stays off; Snapshot shows which are on.
func (i *Interface) SetOffloads(o exteth.Caps) error {
	d, ok := i.dev.(device.Offloader)
	if !ok {
		return fmt.Errorf("%w: the offloads of %s cannot be changed", ErrConfig, i.dev.Name())
	}
	if err := d.SetOffloads(o); err != nil {
		return err
	}
	i.ask(i.offloadsChanged)
	return nil
}

// offloadsChanged makes the loop use the offloads that the device has now.
func (i *Interface) offloadsChanged() {
	offloads := i.dev.Offloads()
	i.eth.SetCaps(offloads)
	i.parts = nil
	if offloads&exteth.CapBig != 0 {
		i.parts, _ = i.dev.(device.PartsReader)
	}
}

// bufferSize returns the size of the frame buffers. On a TUN they have room for big packets; small
// frames touch only the beginning.
func (i *Interface) bufferSize() int {
	if i.tap {
		return 0 // exteth's default
	}
	return exteth.DefaultBufferSize + device.BigPacket - 1<<16
}

// fail ends Run with an error.
func (i *Interface) fail(err error) { i.cancel(err) }

// open lets packets through. It is called when the addresses are ours.
func (i *Interface) open(now time.Duration) {
	i.opened = true
	i.setCarrier(true)
	i.askMembers(now)
	close(i.ready)
}

func (i *Interface) setCarrier(up bool) {
	if err := i.dev.SetCarrier(up); err != nil && !errors.Is(err, device.ErrGone) {
		i.cfg.Log.Warn("cannot set the carrier", "up", up, "err", err)
	}
	i.lineUp.Store(up)
}

// Ready is closed when every address was found free and packets move.
func (i *Interface) Ready() <-chan struct{} { return i.ready }

// Close ends Run and closes the fabric's ports. It is idempotent.
func (i *Interface) Close() error {
	i.mu.Lock()
	switch i.state {
	case running:
		i.cancel(ErrClosed) // Run sets finished itself: until then the loop owns its state
	case idle:
		i.state = finished
		close(i.over)
	}
	first := i.stop != nil
	stop := i.stop
	i.stop = nil
	i.mu.Unlock()
	<-i.over
	if !first {
		return nil
	}
	stop()
	err := i.eth.Close()
	if i.resolver != nil {
		i.resolver.close()
	}
	i.mail.close()
	for _, l := range i.fabric {
		err = errors.Join(err, l.irq.Close())
	}
	i.sleeper.close()
	return err
}
