package exn

import (
	"math/rand/v2"
	"net/netip"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/multicast"
)

// An address of the interface goes through the same states in both families: IPv4
// by arp.Claim, IPv6 by netstack's duplicate address detection (on a TAP: by the
// kernel's, of which we learn nothing and need nothing).
//
//	probing ──► announcing ──► held
//	   └──► lost: Run ends      └─ claimed by another: defended, at most every 10 s
//
// Of an interface that was adopted the addresses are in use: they are announced at
// once, so that the others find the new process, and not probed.
//
// An address that is in use is never given up, whatever others say (RFC 5227,
// 2.4 c): a node that claims it can disturb who believes it, but must not be able to
// end this process.
type address struct {
	prefix netip.Prefix
	claim  *arp.Claim     // IPv4
	state  arp.ClaimState // IPv6
	again  time.Duration  // when to claim it again after a second conflict; 0: no need
	served bool           // netstack answers for it
}

func (a *address) current() arp.ClaimState {
	if a.claim != nil {
		return a.claim.State()
	}
	return a.state
}

// announceOnly is the timing of a claim that asks nobody.
var announceOnly = arp.Timing{AnnounceNum: arp.FabricTiming.AnnounceNum,
	AnnounceInterval: arp.FabricTiming.AnnounceInterval, DefendInterval: arp.FabricTiming.DefendInterval}

// A claimResult says what netstack found out about an IPv6 address.
type claimResult struct {
	addr netip.Addr
	ok   bool
}

// A dadWatch turns the events of an address into letters.
type dadWatch struct {
	addr netip.Addr
	mail *mailbox
}

// OnChanged implements stack.AddressDispatcher.
func (w *dadWatch) OnChanged(_ stack.AddressLifetimes, s stack.AddressAssignmentState) {
	if s == stack.AddressAssigned {
		w.mail.post(func(l *letters) { l.results = append(l.results, claimResult{w.addr, true}) })
	}
}

// OnRemoved implements stack.AddressDispatcher.
func (w *dadWatch) OnRemoved(why stack.AddressRemovalReason) {
	if why == stack.AddressRemovalDADFailed {
		w.mail.post(func(l *letters) { l.results = append(l.results, claimResult{w.addr, false}) })
	}
}

// claimAll starts the claims. It is called by the loop, as all that follows.
func (i *Interface) claimAll(now time.Duration) {
	timing := arp.FabricTiming
	if i.dev.Adopted() {
		timing = announceOnly
	}
	for _, a := range i.addresses {
		addr := a.prefix.Addr()
		switch {
		case addr.Is4():
			a.claim = arp.NewClaim(addr, i.mac, timing, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), now)
		case i.resolver == nil: // a TAP: the kernel probes and announces it
			a.state = arp.Held
		default:
			if group, ok := multicast.MACOf(arp.SolicitedNode(addr)); ok {
				i.membership.Add(group)
			}
			i.joinGroups()
			if err := i.resolver.add(a.prefix, &dadWatch{addr, &i.mail}); err != nil {
				i.fail(err)
			}
		}
	}
	i.advanceClaims(now)
}

// advanceClaims does what is due, and opens the interface when nothing is in question
// any more.
func (i *Interface) advanceClaims(now time.Duration) {
	open := true
	for _, a := range i.addresses {
		if a.claim != nil {
			i.advanceClaim(a, now)
		}
		open = open && a.current() != arp.Probing && a.current() != arp.Lost
	}
	if open && !i.opened {
		i.open(now)
	}
}

func (i *Interface) advanceClaim(a *address, now time.Duration) {
	if a.again != 0 && now >= a.again {
		a.again = 0
		a.claim = arp.NewClaim(a.prefix.Addr(), i.mac, announceOnly, nil, now)
	}
	for {
		at, timed := a.claim.Next()
		if !timed || now < at {
			return
		}
		before := a.claim.State()
		frame := a.claim.Advance(now, i.scratch[:0])
		if before == arp.Probing && a.claim.State() == arp.Announcing && i.resolver != nil && !a.served {
			a.served = true
			if err := i.resolver.add(a.prefix, nil); err != nil {
				i.fail(err)
			}
		}
		if len(frame) > 0 {
			i.sendFrame(frame, now)
		}
	}
}

// observeARP shows the claims a packet of another node.
func (i *Interface) observeARP(p *arp.Packet, now time.Duration) {
	for _, a := range i.addresses {
		if a.claim == nil {
			continue
		}
		before := a.claim.State()
		frame := a.claim.Receive(p, now, i.scratch[:0])
		if len(frame) > 0 {
			i.stats.count(conflicts)
			i.cfg.Log.Warn("address claimed by another node; defended", "addr", a.prefix.Addr(), "rival", a.claim.Rival())
			i.sendFrame(frame, now)
		}
		if before == arp.Lost || a.claim.State() != arp.Lost {
			continue
		}
		i.stats.count(conflicts)
		if before == arp.Probing {
			i.fail(i.conflict(a.prefix.Addr(), a.claim.Rival()))
			return
		}
		i.cfg.Log.Warn("address claimed by another node; will be announced again", "addr", a.prefix.Addr(),
			"rival", a.claim.Rival(), "in", arp.FabricTiming.DefendInterval)
		a.again = now + arp.FabricTiming.DefendInterval
	}
}

func (i *Interface) conflict(a netip.Addr, rival arp.MAC) *ConflictError {
	n, ok := i.cfg.Prefix.Node(rival)
	return &ConflictError{Addr: a, Rival: rival, Node: n, Known: ok}
}

// detected takes netstack's verdict about an IPv6 address.
func (i *Interface) detected(r claimResult, now time.Duration) {
	for _, a := range i.addresses {
		if a.prefix.Addr() != r.addr {
			continue
		}
		if !r.ok {
			a.state = arp.Lost
			i.stats.count(conflicts)
			i.fail(&ConflictError{Addr: r.addr})
			return
		}
		if a.state == arp.Probing {
			a.state = arp.Held
			i.sendFrame(arp.AppendUnsolicitedNA(i.scratch[:0], i.mac, r.addr), now)
		}
	}
	i.advanceClaims(now)
}

// nextClaim returns when advanceClaims is due.
func (i *Interface) nextClaim() (at time.Duration, ok bool) {
	for _, a := range i.addresses {
		if a.claim == nil {
			continue
		}
		t, timed := a.claim.Next()
		if a.again != 0 {
			t, timed = a.again, true
		}
		if timed && (!ok || t < at) {
			at, ok = t, true
		}
	}
	return at, ok
}
