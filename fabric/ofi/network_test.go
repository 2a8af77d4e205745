package ofi

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"exnet/fabric"
	"exnet/fabric/ofi/libfabric"
)

// A network is engines in one process, with the faults of a provider: it loses
// what it had accepted and connects again without a word, refuses for a while,
// delivers late, and fails operations by RMA.
type network struct {
	mu   sync.Mutex
	rng  *rand.Rand
	ends map[netip.AddrPort]*end

	loses   float64 // the chance that a send is the end of its connection
	doubles float64 // that a message comes twice
	fails   float64 // that an operation by RMA fails, done or not
	cut     func(from, to netip.AddrPort) bool
	lost    int
}

// An end is an engine.
type end struct {
	n       *network
	at      netip.AddrPort
	to      []netip.AddrPort
	posted  []posted
	inbox   []transfer
	events  []libfabric.Event
	regions map[uint64][]byte
	refuse  map[netip.AddrPort]int
	closed  bool
}

type posted struct {
	b       []byte
	context uint64
}

type transfer struct {
	from netip.AddrPort
	b    []byte
}

var _ engine = (*end)(nil)

func newNetwork(seed uint64) *network {
	return &network{rng: rand.New(rand.NewPCG(seed, 3)), ends: map[netip.AddrPort]*end{},
		cut: func(netip.AddrPort, netip.AddrPort) bool { return false }}
}

// attach makes a node of the network.
func (w *network) attach(t testing.TB, c Config) *Node {
	t.Helper()
	w.mu.Lock()
	var at netip.AddrPort
	for _, m := range c.Members {
		if m.ID == c.Node {
			at = m.Address
		}
	}
	e := &end{n: w, at: at, regions: map[uint64][]byte{}, refuse: map[netip.AddrPort]int{}}
	w.ends[at] = e
	w.mu.Unlock()
	n, err := start(c, e, libfabric.Traits{WaitFD: -1, Sends: sends, Receives: receives, KeySize: 8}, c.Node, false)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// nodes attaches nodes 1 to k, which know each other when it returns.
func (w *network) nodes(t testing.TB, k int, c Config) (all []*Node) {
	t.Helper()
	for i := range k {
		c.Members = append(c.Members, Member{fabric.NodeID(i + 1), netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:1", i+1))})
	}
	for i := range k {
		c.Node = fabric.NodeID(i + 1)
		all = append(all, w.attach(t, c))
	}
	eventually(t, "all know each other", func() bool {
		for _, n := range all {
			if len(n.Peers()) != k-1 {
				return false
			}
		}
		return true
	})
	return all
}

// set changes the faults.
func (w *network) set(f func(*network)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w)
}

func (e *end) Insert(a netip.AddrPort) (libfabric.Address, error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.to = append(e.to, a)
	return libfabric.Address(len(e.to) - 1), nil
}

func (e *end) Send(to libfabric.Address, b []byte, _ libfabric.Region, context uint64) error {
	w := e.n
	w.mu.Lock()
	defer w.mu.Unlock()
	at := e.to[to]
	if e.refuse[at] > 0 {
		e.refuse[at]--
		return libfabric.ErrAgain
	}
	target := w.ends[at]
	if target == nil || target.closed {
		return libfabric.ErrAgain
	}
	e.events = append(e.events, libfabric.Event{Context: context})
	if w.cut(e.at, at) {
		w.lost++
		return nil
	}
	if w.rng.Float64() < w.loses { // and with it what was under way before
		left := target.inbox[:0]
		for _, m := range target.inbox {
			if m.from != e.at {
				left = append(left, m)
			} else {
				w.lost++
			}
		}
		target.inbox = left
		w.lost++
		e.refuse[at] = w.rng.IntN(4)
		return nil
	}
	m := transfer{e.at, append([]byte(nil), b...)}
	target.inbox = append(target.inbox, m)
	if w.rng.Float64() < w.doubles {
		target.inbox = append(target.inbox, m)
	}
	return nil
}

func (e *end) Recv(b []byte, _ libfabric.Region, context uint64) error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.posted = append(e.posted, posted{b, context})
	return nil
}

func (e *end) transfer(to libfabric.Address, b []byte, at, key, context uint64, move func(there []byte)) error {
	w := e.n
	w.mu.Lock()
	defer w.mu.Unlock()
	target := w.ends[e.to[to]]
	ev := libfabric.Event{Context: context}
	var region []byte
	if target != nil && !target.closed {
		region = target.regions[key]
	}
	failed := w.rng.Float64() < w.fails
	if at+uint64(len(b)) > uint64(len(region)) {
		failed = true
	} else if !failed || w.rng.IntN(2) == 0 {
		move(region[at:][:len(b)])
	}
	if failed {
		ev.Errno = syscall.ECANCELED
	}
	e.events = append(e.events, ev)
	return nil
}

func (e *end) Write(to libfabric.Address, b []byte, _ libfabric.Region, at, key, context uint64) error {
	return e.transfer(to, b, at, key, context, func(there []byte) { copy(there, b) })
}

func (e *end) Read(to libfabric.Address, b []byte, _ libfabric.Region, at, key, context uint64) error {
	return e.transfer(to, b, at, key, context, func(there []byte) { copy(b, there) })
}

func (e *end) Register(b []byte, _, _ bool, key uint64) (libfabric.Region, error) {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.regions[key] = b
	return libfabric.Region{Key: key}, nil
}

func (e *end) Deregister(r libfabric.Region) error {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	delete(e.regions, r.Key)
	return nil
}

func (e *end) Poll(into []libfabric.Event) int {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	for len(e.inbox) > 0 && len(e.posted) > 0 {
		m, p := e.inbox[0], e.posted[0]
		e.inbox, e.posted = e.inbox[1:], e.posted[1:]
		e.events = append(e.events, libfabric.Event{Context: p.context, Length: copy(p.b, m.b)})
	}
	k := copy(into, e.events)
	e.events = e.events[:copy(e.events, e.events[k:])]
	return k
}

func (e *end) MayWait() bool { return false }

func (e *end) Close() {
	e.n.mu.Lock()
	defer e.n.mu.Unlock()
	e.closed = true
}
