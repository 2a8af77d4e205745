package exteth

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"exnet/arp"
	"exnet/fabric"
	"exnet/mtu"
)

const (
	// DefaultEager is four fragments; more was never useful (EAG-1).
	DefaultEager = 4 * Fragment
	// DefaultMulticastEager covers an Ethernet frame of the usual size in 13 messages. It is
	// cheaper to have each member fetch longer ones (MCS-2).
	DefaultMulticastEager = 1514
	// QueueFrames bounds the frames that wait for one peer.
	QueueFrames = 64
	// QueueTime bounds how long each of them waits.
	QueueTime = time.Millisecond
	// SoleQueueTime replaces QueueTime while only one peer is in use and has not stalled. It is
	// a few scheduling slices of a busy host: a receiver that waits for its CPU is not dead,
	// and dropping would only make TCP slow down.
	SoleQueueTime = 20 * time.Millisecond
	// DefaultTimeout is how long an advert or a GET may stay without its notification. It is
	// ten scheduling delays of an overloaded host, and a fifth of the second in which peers
	// must recover.
	DefaultTimeout = 200 * time.Millisecond
	// ReassemblyTime is how long an incomplete eager frame is kept. The sender sends its
	// fragments together, except that it may wait QueueTime in between.
	ReassemblyTime = 100 * time.Millisecond
	// parkedNotifications bounds the notifications kept for transfers that are not entered yet.
	parkedNotifications = 64
	// batch is the most messages taken from the port at once.
	batch = 64
	// tellEvery is after how many messages a sender is interrupted for fetched frames while
	// more messages are there: a quarter of its buffers.
	tellEvery = DefaultBuffers / 4
)

// Errors of Send. Each is counted. After ErrTooBig the caller still owns the buffer, so it can
// quote the frame in an ICMP error. After all others the engine owns it.
var (
	// ErrFrame means that a frame is too short or too long, or does not fit its virtio header.
	ErrFrame = errors.New("exteth: bad frame")
	// ErrTooBig means that the receiver's MTU is smaller; see [Engine.TooBig].
	ErrTooBig = errors.New("exteth: frame too big for the receiver")
	// ErrForeign means that the destination address is no other node of this fabric.
	ErrForeign = errors.New("exteth: no node has this MAC address")
	// ErrNoNode means that the destination node is not attached, or speaks another version.
	ErrNoNode = errors.New("exteth: node cannot be reached")
	// ErrDropped means that the peer or the fabric had no room for too long.
	ErrDropped = errors.New("exteth: frame dropped")
)

// A Frame is a received frame. The frame and its data are valid only during the call.
type Frame struct {
	From fabric.NodeID
	VNet VNet
	// Rendezvous is true if the frame was fetched, false if it came in messages.
	Rendezvous bool
	// Header is a private copy of the MAC header. Data is the whole frame. It may lie in the
	// sender's memory, where a hostile sender can change it at any moment, so read each byte
	// once.
	Header [mtu.MACHeader]byte
	Data   []byte
}

// Destination returns the destination MAC address.
func (f *Frame) Destination() arp.MAC { return arp.MAC(f.Header[:6]) }

// EtherType returns the type field.
func (f *Frame) EtherType() uint16 { return uint16(f.Header[12])<<8 | uint16(f.Header[13]) }

// ErrConfig is wrapped by every error about a setting of [Config] but the MTU.
var ErrConfig = errors.New("exteth: bad configuration")

// Config configures an engine. Zero values mean the defaults; Receive has none.
type Config struct {
	// Receive takes a frame. An error means that it did not take it, which is counted.
	Receive func(*Frame) error
	// Accept filters received multicast frames, as multicast.Membership.Accept does. Without it
	// the engine takes all of them.
	Accept func(arp.MAC) bool

	VELO, RMA           fabric.VPID // the same on all nodes of a fabric
	VELOIRQ, RMAIRQ     fabric.PortInterrupts
	Prefix              arp.Prefix
	Promiscuous         bool // also take unicast frames for other MAC addresses
	MTU                 mtu.Link
	Caps                Caps // offloads that Receive takes; none by default
	Eager               int  // longest eager frame, inclusive
	MulticastEager      int
	Copy                bool // GET into a buffer even where the peer's memory is mapped
	Buffers, BufferSize int
	Timeout             time.Duration
	Instance            uint64 // random by default
}

func (c *Config) setDefaults() error {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	if c.Prefix == (arp.Prefix{}) {
		c.Prefix = arp.DefaultPrefix
	}
	if c.MTU == 0 {
		c.MTU = mtu.DefaultLink
	}
	def(&c.Eager, DefaultEager)
	def(&c.MulticastEager, DefaultMulticastEager)
	def(&c.Buffers, DefaultBuffers)
	const page = 4096
	def(&c.BufferSize, max(DefaultBufferSize, (Headroom+int(c.MTU)+page-1)/page*page))
	if c.Timeout == 0 {
		c.Timeout = DefaultTimeout
	}
	for c.Instance == 0 {
		c.Instance = rand.Uint64()
	}
	if _, err := mtu.CheckLink(int(c.MTU)); err != nil {
		return fmt.Errorf("exteth: %w", err)
	}
	switch {
	case c.Receive == nil:
		return errors.New("exteth: Config.Receive is missing")
	case c.Eager < 0 || c.Eager > MaxEager:
		return fmt.Errorf("%w: eager threshold %d: choose 1 to %d bytes", ErrConfig, c.Eager, MaxEager)
	case c.MulticastEager < 0 || c.MulticastEager > MaxMulticastEager:
		return fmt.Errorf("%w: eager threshold %d of multicast: choose 1 to %d bytes", ErrConfig, c.MulticastEager, MaxMulticastEager)
	case c.Buffers < MinBuffers || c.Buffers > MaxBuffers:
		return fmt.Errorf("%w: %d buffers: choose %d to %d, each is a window of the fabric", ErrConfig, c.Buffers, MinBuffers, MaxBuffers)
	case c.BufferSize < Headroom+int(c.MTU):
		return fmt.Errorf("%w: buffers of %d bytes: MTU %d needs %d", ErrConfig, c.BufferSize, c.MTU, Headroom+int(c.MTU))
	}
	return c.Prefix.Check()
}

// An Engine is one node's end of EXT-Eth. See the package comment.
type Engine struct {
	cfg     Config
	node    fabric.Node
	self    fabric.NodeID
	mac     arp.MAC
	velo    fabric.VELO
	rma     fabric.RMA
	inPlace fabric.InPlace // nil: fetch into sinks
	stats   Statistics

	peers peerTable
	busy  []*peer // peers that Advance has to look at

	tx     *pool
	sinks  *pool // made on first use
	sent   *matcher[sentFrame]
	gets   *matcher[pendingGet]
	active int // peers with frames under way that have not stalled
	taps   []*Tap

	multicastWaiting int    // multicast frames in the peers' queues
	multicastNumber  uint16 // of the next eager multicast frame

	messages      [batch]fabric.Message
	notifications [batch]fabric.Notification
	scratch       [Fragment]byte
	frame         Frame
	small         [][]byte // free buffers for eager frames in order queues

	// The GET in place that is running; useSource is its sink.
	use struct {
		f        func([]byte) error
		peer     *peer
		advert   advert
		gathered []byte
		buffer   []byte
		done     bool
	}
	get fabric.RMADescriptor

	// The peer whose frames were fetched in place and whose interrupt is still to be raised for
	// them. A peer that waits for buffers usually gets the CPU before the one that woke it.
	// Interrupted for each frame, it would wake for one buffer at a time. While PollVELO uses
	// all of its budget, the peer is interrupted once in tellEvery messages; deferred counts
	// the messages since the last time.
	untold   *peer
	deferred int
}

// New opens the ports of the node and says hello to the others.
func New(node fabric.Node, cfg Config) (_ *Engine, err error) {
	if err := cfg.setDefaults(); err != nil {
		return nil, err
	}
	e := &Engine{
		cfg:  cfg,
		node: node,
		self: node.ID(),
		mac:  cfg.Prefix.MAC(node.ID()),
		sent: newMatcher[sentFrame](4*cfg.Buffers, parkedNotifications),
		gets: newMatcher[pendingGet](cfg.Buffers, parkedNotifications),
	}
	e.use.f = e.useSource
	if e.velo, err = node.OpenVELO(cfg.VELO, cfg.VELOIRQ); err != nil {
		return nil, fmt.Errorf("exteth: VELO port %d: %w", cfg.VELO, err)
	}
	if e.rma, err = node.OpenRMA(cfg.RMA, cfg.RMAIRQ); err != nil {
		_ = e.velo.Close()
		return nil, fmt.Errorf("exteth: RMA port %d: %w", cfg.RMA, err)
	}
	if e.tx, err = newPool(node, e.rma, cfg.Buffers, cfg.BufferSize, fabric.RemoteRead); err != nil {
		_ = e.velo.Close()
		_ = e.rma.Close()
		return nil, err
	}
	if !cfg.Copy {
		e.inPlace, _ = e.rma.(fabric.InPlace)
	}
	for _, n := range node.Peers() {
		e.greet(e.peer(n), false)
	}
	return e, nil
}

// Close closes the ports and frees the buffers. Frames under way are lost.
func (e *Engine) Close() error {
	errV := e.velo.Close()
	e.tx.close()
	if e.sinks != nil {
		e.sinks.close()
	}
	return errors.Join(errV, e.rma.Close())
}

// Statistics returns the counters.
func (e *Engine) Statistics() *Statistics { return &e.stats }

// MAC returns the engine's own address.
func (e *Engine) MAC() arp.MAC { return e.mac }

// MTU returns the MTU of this node.
func (e *Engine) MTU() mtu.Link { return e.cfg.MTU }

// Borrow returns a free buffer, or nil when all are in use.
func (e *Engine) Borrow() *Buffer { return e.tx.take() }

// Return takes a borrowed buffer back unused.
func (e *Engine) Return(b *Buffer) { e.tx.release(b) }

// Blocked reports that reading more frames to send is useless now: no buffer is free, or the only
// peer that is in use and has not stalled is at its bound. A notification, a message, or the time
// that Next gives ends that state.
func (e *Engine) Blocked() bool {
	if len(e.tx.free) == 0 {
		return true
	}
	if e.active != 1 {
		return false
	}
	for _, p := range e.busy {
		if p.counted {
			return p.queue.n > 0
		}
	}
	return false
}

// Awaiting reports whether some work waits for a notification. While it is false, notifications
// need not wake the caller: those of fetched frames can wait until there is something else to do,
// and Advance takes them before it counts a frame as missing.
func (e *Engine) Awaiting() bool {
	if len(e.tx.free) == 0 || e.gets.expecting() > 0 {
		return true
	}
	for _, p := range e.busy {
		if p.queue.n > 0 || p.order.n > 0 {
			return true
		}
	}
	return false
}

// Takes reports whether a node takes frames that need all capabilities in c.
func (e *Engine) Takes(n fabric.NodeID, c Caps) bool {
	p := e.peers.get(n)
	return p != nil && p.caps&c == c
}

// NodeEvent says that a node joined or left. The events come from fabric.Node.Watch on another
// goroutine, and the caller hands them over. Call Watch before New, so that no node is missed.
func (e *Engine) NodeEvent(ev fabric.Event, now time.Duration) {
	p := e.peer(ev.Node)
	if ev.Joined {
		e.greet(p, false)
		return
	}
	e.reset(p, TXNodeLeft, RXNodeLeft)
	e.peers.delete(ev.Node)
	e.settle(p)
}

// Advance sends waiting frames and ends transfers that took too long. Call it after polling, and
// when Next says so.
func (e *Engine) Advance(now time.Duration) {
	if len(e.tx.limbo) > 0 {
		e.tx.revive()
	}
	if e.sinks != nil && len(e.sinks.limbo) > 0 {
		e.sinks.revive()
	}
	if t, ok := e.sent.next(); ok && t <= now {
		e.PollRMA(now, len(e.sent.entries)) // the notification may be there already
	}
	for {
		_, s, ok := e.sent.expire(now)
		if !ok {
			break
		}
		e.stats.count(TXTimeout)
		s.peer.window, s.peer.stalled = 1, true
		e.tx.poison(s.buffer)
		e.ended(s)
	}
	for {
		_, g, ok := e.gets.expire(now)
		if !ok {
			break
		}
		e.stats.count(RXTimeout)
		e.failGet(g)
		e.deliver(g.peer, now)
	}
	for i := 0; i < len(e.busy); {
		p := e.busy[i]
		e.advancePeer(p, now)
		if p.hasTime() {
			i++
			continue
		}
		last := len(e.busy) - 1
		e.busy[i] = e.busy[last]
		e.busy[last] = nil
		e.busy = e.busy[:last]
		p.busy = false
	}
	if e.deferred == 0 {
		e.Tell()
	}
}

func (e *Engine) advancePeer(p *peer, now time.Duration) {
	if p.greeting != greetNone {
		e.greet(p, p.greeting == greetAnswer)
	}
	e.flush(p, now)
	e.deliver(p, now)
	for _, a := range []*assembly{&p.unicast, &p.multicast} {
		if a.active && now-a.since >= ReassemblyTime {
			a.active = false
			e.stats.count(RXReassemblyExpired)
		}
	}
}

// Next returns how long after now Advance is due at the latest. ok is false when only a message or
// a notification can bring work.
func (e *Engine) Next(now time.Duration) (wait time.Duration, ok bool) {
	at := time.Duration(1<<63 - 1)
	if t, ok := e.sent.next(); ok {
		at = min(at, t)
	}
	if t, ok := e.gets.next(); ok {
		at = min(at, t)
	}
	if len(e.tx.limbo) > 0 || e.sinks != nil && len(e.sinks.limbo) > 0 {
		at = min(at, now+QueueTime)
	}
	for _, p := range e.busy {
		at = min(at, e.nextOf(p, now))
	}
	return max(0, at-now), at != 1<<63-1
}
