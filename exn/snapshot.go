package exn

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"exnet/arp"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/multicast"
	"exnet/napi"
)

// A Snapshot is the state of an interface at one moment, for people and for programs. Counters are
// read one by one while traffic goes on. Each is exact, but together they may be some packets
// apart.
type Snapshot struct {
	Time    time.Time     `json:"time"`
	Uptime  time.Duration `json:"uptime_ns"`
	Name    string        `json:"name"`
	Kind    string        `json:"kind"` // tun, tap or router
	Node    fabric.NodeID `json:"node"`
	MAC     string        `json:"mac"`
	MTU     int           `json:"mtu"`
	Carrier bool          `json:"carrier"`
	Adopted bool          `json:"adopted"`

	Addresses  []AddressState   `json:"addresses"`
	Statistics exteth.Interface `json:"statistics"` // the fields of Listing 5.1
	// Counters are all counters by name. Each lost packet counts in exactly one of them, except
	// that rx_refused also includes rx_refused_*, rx_not_ip and rx_spoofed.
	Counters   map[string]uint64 `json:"counters"`
	Peers      []PeerState       `json:"peers"`
	Neighbours []Neighbour       `json:"neighbours"`
	Groups     []Group           `json:"groups"`
	NAPI       NAPIState         `json:"napi"`
	Settings   Settings          `json:"settings"`
}

// An AddressState is one address of the interface with the state of its claim.
type AddressState struct {
	Prefix netip.Prefix `json:"prefix"`
	State  string       `json:"state"` // probing, announcing, held, lost
}

// A PeerState is another node as this one knows it.
type PeerState struct {
	Node    fabric.NodeID `json:"node"`
	MAC     string        `json:"mac"`
	Met     bool          `json:"met"` // its HELLO came; false: the other fields are assumptions
	Version uint8         `json:"version"`
	MTU     int           `json:"mtu"`
	Takes   string        `json:"takes"` // virtio features, such as csum+tso4
	Out     int           `json:"out"`   // adverts not fetched yet
	Waiting int           `json:"waiting"`
	Window  int           `json:"window"`
}

// A Neighbour is an entry of the neighbour table.
type Neighbour struct {
	Addr    netip.Addr    `json:"addr"`
	MAC     string        `json:"mac"`
	Node    fabric.NodeID `json:"node"`
	State   string        `json:"state"` // as in RFC 4861
	Updated time.Time     `json:"updated"`
}

// A Group is an IP multicast group that the interface is a member of.
type Group struct {
	Addr   netip.Addr   `json:"addr"`
	MAC    string       `json:"mac"`
	Fabric fabric.Group `json:"fabric_group"`
}

// A NAPIState is the state of the poll engine.
type NAPIState struct {
	Mode    string        `json:"mode"`
	Loop    napi.Stats    `json:"loop"`
	Follow  FollowState   `json:"follow"`
	Sources []SourceState `json:"sources"`
}

// A SourceState is the state of one polled source.
type SourceState struct {
	Name   string           `json:"name"`
	Budget int              `json:"budget"`
	Stats  napi.SourceStats `json:"stats"`
	State  string           `json:"itr_state"`
}

// Settings are the settings in effect, with defaults filled in.
type Settings struct {
	BusyPoll       time.Duration `json:"busy_poll_ns"`
	VELOBudget     int           `json:"velo_budget"`
	RMABudget      int           `json:"rma_budget"`
	DeviceBudget   int           `json:"device_budget"`
	ITR            napi.ITR      `json:"itr"`
	Eager          int           `json:"eager"`
	MulticastEager int           `json:"multicast_eager"`
	Copy           bool          `json:"copy"`
	Buffers        int           `json:"buffers"`
	Offloads       string        `json:"offloads"`
	TXQueueLen     int           `json:"txqueuelen"`
}

// Snapshot returns the state of the interface. Any goroutine may call it at any time. The loop
// copies what belongs to the loop, between two packets.
func (i *Interface) Snapshot() Snapshot {
	s := Snapshot{
		Time: time.Now(), Uptime: i.clock(), Name: i.dev.Name(), Kind: i.dev.Kind().String(), Node: i.cfg.Node.ID(),
		MAC: i.mac.String(), MTU: i.dev.MTU(), Carrier: i.lineUp.Load(), Adopted: i.dev.Adopted(),
		Statistics: i.eth.Statistics().Interface(), Counters: make(map[string]uint64),
		NAPI: NAPIState{Mode: i.cfg.Mode.String(), Loop: i.engine.Stats()},
		Settings: Settings{
			BusyPoll: i.cfg.BusyPoll, VELOBudget: i.cfg.VELOBudget, RMABudget: i.cfg.RMABudget, DeviceBudget: i.cfg.DeviceBudget,
			ITR: i.cfg.ITR, Eager: i.cfg.Eager, MulticastEager: i.cfg.MulticastEager, Copy: i.cfg.Copy, Buffers: i.cfg.Buffers,
			Offloads: i.dev.Offloads().String(), TXQueueLen: exteth.TXQueueLen,
		},
	}
	for c := range exteth.Counters {
		s.Counters[c.String()] = i.eth.Statistics().Get(c)
	}
	for c := range counters {
		s.Counters[c.String()] = i.stats[c].Load()
	}
	i.addLosses(&s.Statistics)
	for _, source := range i.sources {
		st := source.Stats()
		s.NAPI.Sources = append(s.NAPI.Sources, SourceState{source.Name(), source.Budget(), st, st.ITRState.String()})
	}
	if i.resolver != nil {
		s.Neighbours = neighbours(i.resolver.stack, resolverNIC, i.cfg.Prefix)
	}
	i.ask(func() { i.loopState(&s) })
	slices.SortFunc(s.Groups, func(a, b Group) int { return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.MAC, b.MAC)) })
	return s
}

// addLosses adds losses outside EXT-Eth to the fields of Listing 5.1.
func (i *Interface) addLosses(f *exteth.Interface) {
	for c, field := range map[counter]*uint64{
		txNotIP: &f.TXErrors, deviceRead: &f.TXErrors,
		txPendingFull: &f.TXDropped, txPendingOld: &f.TXDropped, txUnreachable: &f.TXDropped,
		txNeighbours: &f.TXDropped, txPendingMemory: &f.TXDropped, txNoCopy: &f.TXDropped,
	} {
		*field += i.stats[c].Load()
	}
}

// peerState returns the state of a node, with what EXT-Eth knows of it, if anything.
func peerState(n fabric.NodeID, p exteth.Peer, prefix arp.Prefix) PeerState {
	return PeerState{Node: n, MAC: prefix.MAC(n).String(), Met: p.Met, Version: p.Version,
		MTU: int(p.MTU), Takes: p.Caps.String(), Out: p.Out, Waiting: p.Waiting, Window: p.Window}
}

// loopState adds what belongs to the loop.
func (i *Interface) loopState(s *Snapshot) {
	s.NAPI.Follow = i.followState()
	for _, a := range i.addresses {
		s.Addresses = append(s.Addresses, AddressState{a.prefix, a.current().String()})
	}
	for _, n := range i.cfg.Node.Peers() {
		p, _ := i.eth.Peer(n)
		s.Peers = append(s.Peers, peerState(n, p, i.cfg.Prefix))
	}
	i.membership.Members(func(a netip.Addr) {
		if m, ok := multicast.MACOf(a); ok {
			s.Groups = append(s.Groups, Group{a, m.String(), multicast.GroupOf(m)})
		}
	})
}

// ask makes the loop call f between two packets, and waits for it. Before and after Run, ask calls
// f itself.
func (i *Interface) ask(f func()) {
	i.mu.Lock()
	if i.state != running {
		defer i.mu.Unlock()
		f()
		return
	}
	done := make(chan struct{})
	i.mail.post(func(l *letters) { l.asks = append(l.asks, func() { f(); close(done) }) })
	i.mu.Unlock()
	<-done
}
