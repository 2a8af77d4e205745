package exteth

import (
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
	"gvisor.dev/gvisor/pkg/buffer"
	"gvisor.dev/gvisor/pkg/tcpip"
	"gvisor.dev/gvisor/pkg/tcpip/header"
	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/fabric"
	"exnet/internal/late"
	"exnet/mtu"
	"exnet/multicast"
)

// TXQueueLen is how many packets netstack may queue ahead of the fabric: the txqueuelen of the
// interface (DRV-1).
const TXQueueLen = 1000

// DefaultSpin must exceed the time that waking a sleeper takes (20 us), or spinning saves nothing.
// Beyond 50 us it gains nothing more.
const DefaultSpin = 50 * time.Microsecond

// An Endpoint is an [Engine] as a link of gVisor's netstack. TCP hands it super-packets, which
// cross the fabric whole.
//
//	writers (any goroutine)           the endpoint's goroutine
//	WritePackets ──► queue ──────► copy into a buffer ──► Send
//	                               PollVELO, PollRMA ──► copy ──► DeliverNetworkPacket
//
// One goroutine owns the engine. Writers only queue packets, and wake the goroutine if it sleeps. A
// full queue drops packets and counts them; TCP takes the loss as congestion. The goroutine
// delivers received packets after it has returned the polled messages to the fabric.
//
// Each direction costs one copy, because netstack cannot use foreign memory.
type Endpoint struct {
	node  fabric.Node
	irq   fabric.Interrupt
	clock func() time.Duration
	spin  time.Duration
	stop  func() // stops watching nodes
	done  chan struct{}

	engine     *Engine // these belong to the goroutine
	membership *multicast.Membership
	groups     uint64
	received   stack.PacketBufferList
	answer     []byte

	asleep atomic.Bool
	mtu    atomic.Uint32

	mu         sync.Mutex
	queue      []*stack.PacketBuffer
	events     []fabric.Event
	asks       []func()
	dispatcher stack.NetworkDispatcher
	closed     bool
	inStack    bool      // packets are being delivered to the stack
	changed    sync.Cond // inStack or ended changed
	ended      bool
	onClose    func()
}

var (
	_ stack.LinkEndpoint = (*Endpoint)(nil)
	_ stack.GSOEndpoint  = (*Endpoint)(nil)
)

// EndpointConfig configures an endpoint.
type EndpointConfig struct {
	// Engine is the configuration of the engine. The endpoint sets Receive, Accept, Caps and
	// the interrupts itself.
	Engine Config
	// Snoop makes the node a member of the groups that the stack reports by IGMP and MLD, which
	// must then be enabled in it. Without Snoop the node takes all multicast.
	Snoop bool
	// Complete makes peers complete their frames: no partial checksums, no super-packets. A
	// stack that forwards needs it, because netstack forgets both.
	Complete bool
	// Spin is how long the goroutine polls for more work before it sleeps. The default, none,
	// suits virtual time, which stands still meanwhile. With DefaultSpin a round trip takes 35
	// us instead of 80.
	Spin time.Duration
	// Clock returns the time since any fixed moment; by default since the start.
	Clock func() time.Duration
}

// NewEndpoint makes an endpoint and starts its goroutine. Close ends it.
func NewEndpoint(node fabric.Node, cfg EndpointConfig) (*Endpoint, error) {
	if cfg.Clock == nil {
		start := time.Now()
		cfg.Clock = func() time.Duration { return time.Since(start) }
	}
	irq, err := node.NewInterrupt()
	if err != nil {
		return nil, fmt.Errorf("exteth: interrupt of the endpoint: %w", err)
	}
	e := &Endpoint{node: node, irq: irq, clock: cfg.Clock, spin: cfg.Spin, done: make(chan struct{}),
		membership: multicast.NewMembership(), groups: 1 << fabric.GroupAll}
	e.changed.L = &e.mu
	e.membership.SetAll(!cfg.Snoop)
	// Watch before listing the nodes: one that joins in between is reported twice, which is
	// harmless, and never missed.
	e.stop = node.Watch(e.event)
	c := cfg.Engine
	c.Receive, c.Accept, c.Caps = e.receive, e.membership.Accept, 0
	if !cfg.Complete {
		// netstack would take a UDP super-packet for one datagram
		c.Caps = CapChecksum | CapTSO4 | CapTSO6 | CapECN
	}
	c.VELOIRQ = fabric.PortInterrupts{Receive: irq, Transmit: irq}
	c.RMAIRQ = c.VELOIRQ
	if e.engine, err = New(node, c); err != nil {
		e.stop()
		return nil, errors.Join(err, irq.Close())
	}
	e.mtu.Store(uint32(e.engine.cfg.MTU))
	go e.run()
	return e, nil
}

// Statistics returns the engine's counters.
func (e *Endpoint) Statistics() *Statistics { return e.engine.Statistics() }

// Peers returns what is known of the other nodes. It returns nothing once the endpoint is closed.
func (e *Endpoint) Peers() (all []Peer) {
	e.ask(func() {
		for _, n := range e.node.Peers() {
			if p, ok := e.engine.Peer(n); ok {
				all = append(all, p)
			}
		}
	})
	return all
}

// Capture is [Engine.Tap] for any goroutine. f is never called after stop has returned.
func (e *Endpoint) Capture(f func(*CaptureFrame)) (stop func()) {
	var t *Tap
	e.ask(func() { t = e.engine.Tap(f) })
	return func() { e.ask(func() { e.engine.Untap(t) }) }
}

// ask makes the goroutine call f, and waits for it. It does nothing once the goroutine has ended.
func (e *Endpoint) ask(f func()) {
	done := make(chan struct{})
	e.mu.Lock()
	e.asks = append(e.asks, func() { f(); close(done) })
	e.mu.Unlock()
	e.wake()
	select {
	case <-done:
	case <-e.done:
	}
}

func (e *Endpoint) event(ev fabric.Event) {
	e.mu.Lock()
	e.events = append(e.events, ev)
	e.mu.Unlock()
	e.wake()
}

// wake ends the goroutine's sleep. A caller first publishes its work and then looks at asleep; the
// goroutine first sets asleep and then looks for work. So one of them always sees the other.
func (e *Endpoint) wake() {
	if e.asleep.Load() {
		e.irq.Wake()
	}
}

func (e *Endpoint) run() {
	defer close(e.done)
	defer e.shut()
	var queue []*stack.PacketBuffer
	sent := 0                     // of queue: how many are sent
	spinning := time.Duration(-1) // spin until this time
	defer func() {
		for _, pkt := range queue[sent:] {
			pkt.DecRef()
		}
	}()
	for {
		e.mu.Lock()
		closed, events, asks := e.closed, e.events, e.asks
		e.events, e.asks = nil, nil
		if sent == len(queue) {
			clear(queue)
			queue, e.queue, sent = e.queue, queue[:0], 0
		}
		e.mu.Unlock()
		now := e.clock()
		if closed { // the last packets tell peers that connections ended
			for sent < len(queue) && e.transmit(queue[sent], now) {
				sent++
			}
			return
		}
		for _, ev := range events {
			e.engine.NodeEvent(ev, now)
		}
		for _, f := range asks {
			f()
		}
		work, _ := e.engine.PollRMA(now, batch)
		n, _ := e.engine.PollVELO(now, batch)
		work += n
		e.engine.Advance(now)
		for sent < len(queue) && !e.engine.Blocked() && e.transmit(queue[sent], now) {
			queue[sent] = nil
			sent++
			work++
		}
		e.membership.Advance(now)
		e.joinGroups()
		work += e.deliver()
		if work > 0 || len(events) > 0 {
			spinning = now + e.spin
			continue
		}
		if now < spinning && sent == len(queue) {
			// not while out of credit: to give some, the peer needs the CPU
			pause()
			continue
		}
		// Nothing was done. Packets that are left wait for room, which raises the
		// interrupt, or for a time-out.
		e.asleep.Store(true)
		if e.nothingNew(sent < len(queue)) && e.irq.Arm() {
			e.irq.Wait(e.sleep(now))
		}
		e.asleep.Store(false)
		select {
		case <-e.node.Done(): // closed under us: nothing would sleep any more
			return
		default:
		}
	}
}

// pause lets others run: first goroutines of this program, which make the packets, then other
// programs, such as the fabric's peers.
func pause() {
	late.Yield()
	runtime.Gosched()
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
}

// nothingNew reports whether no other goroutine has published work. New packets do not count while
// older ones are left.
func (e *Endpoint) nothingNew(left bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return (left || len(e.queue) == 0) && len(e.events) == 0 && len(e.asks) == 0 && !e.closed
}

// sleep returns how long to wait; negative means for ever.
func (e *Endpoint) sleep(now time.Duration) time.Duration {
	wait := time.Duration(-1)
	if d, ok := e.engine.Next(now); ok {
		wait = d
	}
	if at, ok := e.membership.Next(); ok {
		if d := max(0, at-now); wait < 0 || d < wait {
			wait = d
		}
	}
	return wait
}

// transmit copies a packet and sends it. If no buffer is free it does nothing and returns false.
func (e *Endpoint) transmit(pkt *stack.PacketBuffer, now time.Duration) bool {
	b := e.engine.Borrow()
	if b == nil {
		return false
	}
	defer pkt.DecRef()
	const off = Headroom - mtu.MACHeader
	views, skip := pkt.AsViewList()
	n := off
	for v := views.Front(); v != nil; v = v.Next() {
		s := v.AsSlice()
		if skip >= len(s) {
			skip -= len(s)
			continue
		}
		n += copy(b.Bytes[n:], s[skip:])
		skip = 0
	}
	n -= off
	if n != pkt.Size() {
		e.engine.stats.count(TXBadFrame)
		e.engine.Return(b)
		return true
	}
	frame := b.Bytes[off : off+n]
	v := vnetOf(&pkt.GSOOptions, frame)
	if n >= mtu.MACHeader {
		e.membership.Sent(frame, now)
	}
	if e.engine.Send(b, off, n, v, now) == ErrTooBig {
		var ok bool
		if e.answer, ok = AppendTooBig(e.answer[:0], frame, e.engine.TooBig(frame, v)); ok {
			e.keep(e.answer)
		}
		e.engine.Return(b)
	}
	return true
}

// vnetOf expresses as a virtio header what netstack left to do to a frame.
func vnetOf(g *stack.GSO, frame []byte) (v VNet) {
	switch g.Type {
	case stack.GSOTCPv4:
		v.GSO = GSOTCPv4
	case stack.GSOTCPv6:
		v.GSO = GSOTCPv6
	default:
		return v
	}
	start := mtu.MACHeader + int(g.L3HdrLen)
	if g.NeedsCsum {
		v.Flags, v.CsumStart, v.CsumOffset = NeedsChecksum, uint16(start), g.CsumOffset
	}
	if len(frame) < start+mtu.TCPHeader {
		return VNet{}
	}
	payload := len(frame) - start - int(frame[start+12]>>4)*4
	if v.GSOSize = g.MSS; payload <= int(g.MSS) { // one packet: only its checksum is missing
		v.GSO, v.GSOSize = GSONone, 0
	}
	return v
}

// receive is the engine's receive function.
func (e *Endpoint) receive(f *Frame) error {
	if f.Header[0]&1 == 1 {
		e.membership.Delivered(f.Data, e.clock())
	}
	e.keep(f.Data)
	return nil
}

// keep copies a frame for delivery. The headers get a view of their own, because netstack needs
// them in one piece, and a view of more than 64 KiB is not pooled.
func (e *Endpoint) keep(frame []byte) {
	const headers = mtu.MACHeader + mtu.IPv4HeaderMost + mtu.TCPHeaderMost
	n := min(len(frame), headers)
	payload := buffer.MakeWithData(frame[:n])
	for rest := frame[n:]; len(rest) > 0; rest = rest[n:] {
		n = min(len(rest), buffer.MaxChunkSize)
		_ = payload.Append(buffer.NewViewWithData(rest[:n]))
	}
	e.received.PushBack(stack.NewPacketBuffer(stack.PacketBufferOptions{Payload: payload}))
}

// deliver passes the received packets to the stack.
func (e *Endpoint) deliver() (n int) {
	if e.received.Len() == 0 {
		return 0
	}
	e.mu.Lock()
	d := e.dispatcher
	e.inStack = d != nil
	e.changed.Broadcast()
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.inStack = false
		e.mu.Unlock()
	}()
	for _, pkt := range e.received.AsSlice() {
		n++
		if d != nil && e.ParseHeader(pkt) {
			eth := header.Ethernet(pkt.LinkHeader().Slice())
			switch to := eth.DestinationAddress(); {
			case to == header.EthernetBroadcastAddress:
				pkt.PktType = tcpip.PacketBroadcast
			case header.IsMulticastEthernetAddress(to):
				pkt.PktType = tcpip.PacketMulticast
			case to == e.LinkAddress():
				pkt.PktType = tcpip.PacketHost
			default:
				pkt.PktType = tcpip.PacketOtherHost
			}
			d.DeliverNetworkPacket(eth.Type(), pkt)
		}
	}
	e.received.Reset()
	return n
}

// joinGroups joins and leaves fabric groups until they match the membership.
func (e *Endpoint) joinGroups() {
	want := e.membership.Groups()
	if want == e.groups {
		return
	}
	for g := range fabric.GroupAll {
		bit := uint64(1) << g
		var err error
		switch {
		case want&^e.groups&bit != 0:
			err = e.node.Join(g)
		case e.groups&^want&bit != 0:
			err = e.node.Leave(g)
		}
		if err != nil {
			return // the node is closed: the loop ends soon
		}
	}
	e.groups = want
}

func (e *Endpoint) shut() {
	e.stop()
	_ = e.engine.Close()
	_ = e.irq.Close()
	e.received.Reset()
	e.mu.Lock()
	for _, pkt := range e.queue {
		pkt.DecRef()
	}
	e.queue, e.closed, e.ended = nil, true, true
	onClose := e.onClose
	e.changed.Broadcast()
	e.mu.Unlock()
	if onClose != nil {
		onClose()
	}
}

// WritePackets implements stack.LinkWriter.
func (e *Endpoint) WritePackets(pkts stack.PacketBufferList) (int, tcpip.Error) {
	n := 0
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		return 0, &tcpip.ErrClosedForSend{}
	}
	for _, pkt := range pkts.AsSlice() {
		if len(e.queue) >= TXQueueLen {
			break
		}
		e.queue = append(e.queue, pkt.Clone())
		n++
	}
	e.mu.Unlock()
	e.wake()
	if n < pkts.Len() {
		e.engine.stats.add(TXLinkQueueFull, pkts.Len()-n)
		return n, &tcpip.ErrNoBufferSpace{}
	}
	return n, nil
}

// Attach implements stack.NetworkLinkEndpoint. The stack passes nil when it removes the NIC, before
// it calls Wait; then Attach closes the endpoint.
func (e *Endpoint) Attach(d stack.NetworkDispatcher) {
	e.mu.Lock()
	e.dispatcher = d
	e.mu.Unlock()
	if d == nil {
		e.Close()
	}
}

// IsAttached implements stack.NetworkLinkEndpoint.
func (e *Endpoint) IsAttached() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.dispatcher != nil
}

// Close implements stack.NetworkLinkEndpoint. It returns at once; see Wait.
func (e *Endpoint) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.irq.Wake()
}

// Wait implements stack.NetworkLinkEndpoint. It returns when the goroutine has ended, or is inside
// the stack and will end next. It must not wait longer: the stack calls it holding a lock that a
// delivery may need.
func (e *Endpoint) Wait() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for !e.ended && !e.inStack {
		e.changed.Wait()
	}
}

// Done is closed when the goroutine has ended and the ports are closed. After that the owner of the
// node may close it.
func (e *Endpoint) Done() <-chan struct{} { return e.done }

// SetOnCloseAction implements stack.NetworkLinkEndpoint.
func (e *Endpoint) SetOnCloseAction(f func()) {
	e.mu.Lock()
	e.onClose = f
	e.mu.Unlock()
}

// MTU implements stack.NetworkLinkEndpoint.
func (e *Endpoint) MTU() uint32 { return e.mtu.Load() }

// SetMTU implements stack.NetworkLinkEndpoint. It limits what netstack sends, and never raises it
// above the MTU that peers were told.
func (e *Endpoint) SetMTU(n uint32) { e.mtu.Store(min(n, uint32(e.engine.cfg.MTU))) }

// MaxHeaderLength implements stack.NetworkLinkEndpoint.
func (e *Endpoint) MaxHeaderLength() uint16 { return mtu.MACHeader }

// LinkAddress implements stack.NetworkLinkEndpoint.
func (e *Endpoint) LinkAddress() tcpip.LinkAddress {
	m := e.engine.mac
	return tcpip.LinkAddress(m[:])
}

// SetLinkAddress implements stack.NetworkLinkEndpoint. It does nothing: the address follows from
// the node's ID and cannot be changed (MAC-1).
func (e *Endpoint) SetLinkAddress(tcpip.LinkAddress) {}

// MAC returns the endpoint's address.
func (e *Endpoint) MAC() arp.MAC { return e.engine.mac }

// Capabilities implements stack.NetworkLinkEndpoint. Received checksums need no verification, since
// the fabric has its own CRC. Netstack computes sent checksums, except TCP's, which come with GSO
// options that say where they are.
func (e *Endpoint) Capabilities() stack.LinkEndpointCapabilities {
	return stack.CapabilityResolutionRequired | stack.CapabilityRXChecksumOffload
}

// GSOMaxSize implements stack.GSOEndpoint: an IP packet of 65,535 bytes.
func (e *Endpoint) GSOMaxSize() uint32 { return uint32(mtu.MaxIPv4) }

// SupportedGSO implements stack.GSOEndpoint.
func (e *Endpoint) SupportedGSO() stack.SupportedGSO { return stack.HostGSOSupported }

// ARPHardwareType implements stack.NetworkLinkEndpoint.
func (e *Endpoint) ARPHardwareType() header.ARPHardwareType { return header.ARPHardwareEther }

// AddHeader implements stack.NetworkLinkEndpoint.
func (e *Endpoint) AddHeader(pkt *stack.PacketBuffer) {
	header.Ethernet(pkt.LinkHeader().Push(mtu.MACHeader)).Encode(&header.EthernetFields{
		SrcAddr: pkt.EgressRoute.LocalLinkAddress,
		DstAddr: pkt.EgressRoute.RemoteLinkAddress,
		Type:    pkt.NetworkProtocolNumber,
	})
}

// ParseHeader implements stack.NetworkLinkEndpoint.
func (e *Endpoint) ParseHeader(pkt *stack.PacketBuffer) bool {
	_, ok := pkt.LinkHeader().Consume(mtu.MACHeader)
	return ok
}
