package exn

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/stack"

	"exnet/arp"
	"exnet/exn/device"
	"exnet/multicast"
)

// An address of the interface goes through the same states in both families. IPv4 uses arp.Claim.
// IPv6 uses netstack's duplicate address detection, or on a TAP the kernel's, whose result we
// neither see nor need.
//
//	probing ──► announcing ──► held
//	   └──► lost: Run ends      └─ claimed by another: defended, at most every 10 s
//
// The addresses of an adopted interface are in use. They are not probed but announced at once, so
// that other nodes find the new process.
//
// An address in use is never given up (RFC 5227, 2.4 c). A node that claims it can disturb those
// that believe it, but must not be able to end this process.
//
// Addresses come and go while the interface runs, if the device reports that: an operator (ip
// address) or a DHCP client changes them. A new one goes through the same states. If it is lost,
// that is only shown and logged: the kernel has the address, and whoever assigned it can remove it.
// An address that the kernel no longer has is forgotten.
type address struct {
	prefix netip.Prefix
	later  bool           // added while the interface ran
	claim  *arp.Claim     // IPv4
	state  arp.ClaimState // IPv6
	again  time.Duration  // when to claim it again after a second conflict; 0: not due
	served bool           // netstack answers for it
}

func (a *address) current() arp.ClaimState {
	if a.claim != nil {
		return a.claim.State()
	}
	return a.state
}

// announceOnly is the timing of a claim that sends no probes.
var announceOnly = arp.Timing{AnnounceNum: arp.FabricTiming.AnnounceNum,
	AnnounceInterval: arp.FabricTiming.AnnounceInterval, DefendInterval: arp.FabricTiming.DefendInterval}

// A claimResult is netstack's verdict on an IPv6 address.
type claimResult struct {
	addr netip.Addr
	ok   bool
}

// A dadWatch posts the events of an address to the mailbox.
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

// claimAll starts the claims. The loop calls it, and all functions below.
func (i *Interface) claimAll(now time.Duration) {
	timing := arp.FabricTiming
	if i.dev.Adopted() {
		timing = announceOnly
		if i.resolver != nil {
			i.resolver.detect(false)
			defer i.resolver.detect(true)
		}
	}
	for _, a := range i.addresses {
		if err := i.claim(a, timing, now); err != nil {
			i.fail(err)
		}
	}
	i.advanceClaims(now)
}

// claim starts the claim of one address.
func (i *Interface) claim(a *address, timing arp.Timing, now time.Duration) error {
	addr := a.prefix.Addr()
	switch {
	case addr.Is4():
		a.claim = arp.NewClaim(addr, i.mac, timing, rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64())), now)
		return nil
	case i.resolver == nil: // a TAP: the kernel probes and announces it
		a.state = arp.Held
		return nil
	}
	if group, ok := multicast.MACOf(arp.SolicitedNode(addr)); ok {
		i.membership.Add(group)
	}
	i.joinGroups()
	a.served = true
	return i.resolver.add(a.prefix, &dadWatch{addr, &i.mail})
}

// unclaim forgets an address.
func (i *Interface) unclaim(a *address) {
	if a.served {
		i.resolver.remove(a.prefix.Addr())
	}
	if i.resolver == nil || a.prefix.Addr().Is4() {
		return
	}
	if group, ok := multicast.MACOf(arp.SolicitedNode(a.prefix.Addr())); ok {
		i.membership.Remove(group)
	}
	i.joinGroups()
}

// watchAddresses tells the loop when the addresses of the device change.
func (i *Interface) watchAddresses() (stop func(), err error) {
	w, ok := i.dev.(device.AddressWatcher)
	if !ok {
		return func() {}, nil
	}
	return w.WatchAddresses(func(present []netip.Prefix) {
		// present must not be nil, which would mean that nothing changed
		i.mail.post(func(l *letters) { l.present = append([]netip.Prefix{}, present...) })
	})
}

// follow updates the interface's addresses to those of its device.
func (i *Interface) follow(present []netip.Prefix, now time.Duration) {
	i.addresses = slices.DeleteFunc(i.addresses, func(a *address) bool {
		gone := !slices.ContainsFunc(present, func(p netip.Prefix) bool { return p.Addr() == a.prefix.Addr() })
		if gone {
			i.cfg.Log.Info("address removed", "addr", a.prefix)
			i.unclaim(a)
		}
		return gone
	})
	for _, p := range present {
		k := slices.IndexFunc(i.addresses, func(a *address) bool { return a.prefix.Addr() == p.Addr() })
		if k >= 0 {
			i.addresses[k].prefix = p // its subnet may have changed
			continue
		}
		i.cfg.Log.Info("address added", "addr", p)
		a := &address{prefix: p, later: true}
		i.addresses = append(i.addresses, a)
		if err := i.claim(a, arp.FabricTiming, now); err != nil {
			i.cfg.Log.Warn("address cannot be claimed", "addr", p, "err", err)
		}
	}
	i.advanceClaims(now)
}

// advanceClaims does what is due. It opens the interface once no address is in doubt any more.
func (i *Interface) advanceClaims(now time.Duration) {
	open := true
	for _, a := range i.addresses {
		if a.claim != nil {
			i.advanceClaim(a, now)
		}
		open = open && (a.later || a.current() != arp.Probing && a.current() != arp.Lost)
	}
	if open && !i.opened {
		i.open(now)
	}
	i.tellHeld()
}

// tellHeld reports our addresses to Config.Held when they have changed.
func (i *Interface) tellHeld() {
	if i.cfg.Held == nil {
		return
	}
	now := i.addrs[:0]
	for _, a := range i.addresses {
		// Of a TAP's IPv6 address, only the kernel knows whether it is free.
		claimed := a.claim != nil || a.served
		if s := a.current(); claimed && (s == arp.Announcing || s == arp.Held) {
			now = append(now, a.prefix.Addr())
		}
	}
	i.addrs = now
	if !slices.Equal(now, i.held) {
		i.held = slices.Clone(now)
		i.cfg.Held(i.held)
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

// observeARP passes a packet of another node to the claims.
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
			i.lost(a, i.conflict(a.prefix.Addr(), a.claim.Rival()))
			return
		}
		i.cfg.Log.Warn("address claimed by another node; will be announced again", "addr", a.prefix.Addr(),
			"rival", a.claim.Rival(), "in", arp.FabricTiming.DefendInterval)
		a.again = now + arp.FabricTiming.DefendInterval
	}
}

// lost handles an address that turned out to be another node's.
func (i *Interface) lost(a *address, err *ConflictError) {
	if !a.later {
		i.fail(err)
		return
	}
	i.cfg.Log.Warn("address in use by another node; it is not announced", "addr", a.prefix, "err", err)
}

func (i *Interface) conflict(a netip.Addr, rival arp.MAC) *ConflictError {
	n, ok := i.cfg.Prefix.Node(rival)
	return &ConflictError{Addr: a, Rival: rival, Node: n, Known: ok}
}

// detected takes netstack's verdict on an IPv6 address.
func (i *Interface) detected(r claimResult, now time.Duration) {
	for _, a := range i.addresses {
		if a.prefix.Addr() != r.addr {
			continue
		}
		if !r.ok {
			a.state, a.served = arp.Lost, false
			i.stats.count(conflicts)
			i.lost(a, &ConflictError{Addr: r.addr})
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
