package ofi

import (
	"math/rand/v2"

	"exnet/fabric"
)

// A lease is the right to reach a window of a peer by RMA: address and key. The
// peer has checked VPID and validity when it gave it; range and rights are
// checked here with each operation, and by the provider of the peer.
//
//	absent ── question ──► asked ── grant ──► granted ── revoke ──► revoked
//
// A revoked lease begins no operation. Its holder says so when the last that
// had begun is over; only then does the owner release the memory. So no key is
// used after its end, which could end a connection of the provider's.
type lease struct {
	name    leaseKey
	granted bool
	fault   fabric.Fault
	direct  bool // by RMA; else by message
	rights  fabric.Rights
	base    uint64
	key     uint64
	length  uint64
	users   int
	revoked bool
}

type leaseKey struct {
	window fabric.NLA // its first byte
	vpid   fabric.VPID
}

// windowName is a window's base address in 25 bits, windowNamed its inverse.
func windowName(a fabric.NLA) uint32 { return uint32(a.Window()) | uint32(a.Generation())<<10 }

func windowNamed(name uint32) fabric.NLA {
	return fabric.MakeNLA(int(name&(fabric.Windows-1)), uint16(name>>10), 0)
}

func windowOf(a fabric.NLA) fabric.NLA { return a &^ (fabric.MaxWindow - 1) }

// lease returns the lease for an operation; nil while it is being asked for.
func (n *Node) lease(p *peer, d *fabric.RMADescriptor) *lease {
	k := leaseKey{windowOf(d.Remote), d.To.VPID}
	l := p.leases[k]
	if l == nil {
		l = &lease{name: k}
		p.leases[k] = l
		n.count(fabric.RegTLBMisses, 1)
		p.put(record{kind: recLease, dst: uint8(k.vpid), op: windowName(k.window)})
		return nil
	}
	if !l.granted {
		return nil
	}
	if l.fault != fabric.FaultNone || !l.direct { // nobody tells when that changes: the next operation asks again
		delete(p.leases, k)
	}
	return l
}

// check is the translation of an operation.
func (l *lease) check(d *fabric.RMADescriptor) fabric.Fault {
	need := fabric.RemoteWrite
	if d.Command == fabric.Get {
		need = fabric.RemoteRead
	}
	off := d.Remote.Offset()
	switch {
	case l.fault != fabric.FaultNone:
		return l.fault
	case l.rights&need == 0:
		return fabric.FaultRights
	case off >= l.length || uint64(d.Length) > l.length-off:
		return fabric.FaultRange
	}
	return fabric.FaultNone
}

// leave ends an operation's use of the lease.
func (l *lease) leave(p *peer) {
	if l.users--; l.users == 0 && l.revoked {
		p.put(record{kind: recRevoked, op: windowName(l.name.window)})
	}
}

// receivedGrant takes the answer to a question of ours.
func (p *peer) receivedGrant(r *record) bool {
	l := p.leases[leaseKey{windowNamed(r.op), fabric.VPID(r.dst)}]
	if l == nil || l.granted || r.src > 7 || r.a > uint8(fabric.FaultMemory) || r.z > fabric.MaxWindow {
		return false
	}
	l.granted, l.fault, l.rights, l.direct = true, fabric.Fault(r.a), fabric.Rights(r.src&3), r.src&4 != 0
	l.base, l.key, l.length = r.x, r.y, r.z
	return true
}

// receivedRevoke: operations that have begun go on, others ask again.
func (p *peer) receivedRevoke(r *record) bool {
	l := p.leases[leaseKey{windowNamed(r.op), fabric.VPID(r.dst)}]
	if l == nil || !l.granted || !l.direct {
		return false
	}
	delete(p.leases, l.name)
	l.revoked = true
	if l.users == 0 {
		p.put(record{kind: recRevoked, op: r.op})
	}
	return true
}

// receivedRevoked: the peer has no more operations on the window.
func (p *peer) receivedRevoked(r *record) bool {
	w := p.n.windows[windowNamed(r.op).Window()]
	if w == nil || w.nla != windowNamed(r.op) || !w.leaving || !w.granted[p] {
		return false
	}
	w.ungrant(p)
	return true
}

// receivedLease answers a question for a window of ours.
func (p *peer) receivedLease(r *record) {
	n := p.n
	at := windowNamed(r.op)
	answer := record{kind: recGrant, dst: r.dst, op: r.op}
	_, fault := n.atu.Table().Lookup(at, 1, fabric.VPID(r.dst), 0)
	if fault == fabric.FaultNone {
		w := n.windows[at.Window()]
		answer.src, answer.z = uint8(w.spec.Rights), uint64(w.spec.Length)
		if w.spec.Pages == nil && w.spec.Rights != 0 {
			if fault = w.expose(); fault == fabric.FaultNone {
				answer.src |= 4
				answer.x, answer.y = w.region.Base, w.region.Key
				if !w.granted[p] {
					w.granted[p], p.grants[w] = true, true
					w.users++
				}
			}
		}
	}
	answer.a = uint8(fault)
	p.put(answer)
}

// expose makes the window known to the provider, under a key that none can guess.
func (w *window) expose() fabric.Fault {
	n := w.port.n
	if w.exposed {
		return fabric.FaultNone
	}
	b := w.mem.b[w.spec.Offset:][:w.spec.Length]
	for range 8 { // a key that is taken is as unlikely as one that is guessed
		key := rand.Uint64() >> 1
		if n.keySize < 8 {
			key &= 1<<(8*n.keySize) - 1
		}
		if key == 0 {
			continue
		}
		region, err := n.engine.Register(b, w.spec.Rights&fabric.RemoteRead != 0, w.spec.Rights&fabric.RemoteWrite != 0, key)
		if err == nil {
			w.region, w.exposed = region, true
			return fabric.FaultNone
		}
	}
	return fabric.FaultMemory
}
