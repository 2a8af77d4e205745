package multicast

import (
	"net/netip"
	"time"

	"exnet/arp"
	"exnet/fabric"
)

const (
	// MemberTime is how long a query may stay unanswered: two query intervals of 125 s and one
	// response interval of 10 s (RFC 3376, 8.4).
	MemberTime = 260 * time.Second
	// LeaveTime is how long a group is kept after a leave: two last-member query intervals (RFC
	// 3376, 8.8).
	LeaveTime = 2 * time.Second
	// MaxMembers bounds the IP groups that are remembered one by one. Linux lets a socket join
	// 20 (net.ipv4.igmp_max_memberships).
	MaxMembers = 1024
)

// A Membership is the set of groups that one interface has joined. It belongs to one goroutine.
type Membership struct {
	members map[netip.Addr]time.Duration // deadline of each member; 0: none
	macs    map[arp.MAC]int              // number of members and additions
	counts  [hashed]int                  // number of MAC addresses in each fabric group
	groups  uint64

	all      bool
	overflow bool
	over     time.Duration // deadline of overflow; 0: none
	next     time.Duration // earliest deadline; 0: none
}

// NewMembership makes a membership of group 63 only.
func NewMembership() *Membership {
	return &Membership{
		members: make(map[netip.Addr]time.Duration),
		macs:    make(map[arp.MAC]int),
		groups:  1 << fabric.GroupAll,
	}
}

// Sent looks at a frame that the local stack sends.
func (m *Membership) Sent(frame []byte, now time.Duration) {
	if !mayBeMessage(frame) {
		return
	}
	parse(frame, func(v version, s statement, group netip.Addr) {
		switch s {
		case joins:
			m.join(group)
		case leaves:
			if d, ok := m.members[group]; ok && (d == 0 || d > now+LeaveTime) {
				m.deadline(group, now+LeaveTime)
			}
		case asks: // the host itself is a querier; its own kernel answers, too
			m.queried(v, group, now)
		}
	})
}

// Delivered looks at a frame that the local stack receives.
func (m *Membership) Delivered(frame []byte, now time.Duration) {
	if !mayBeMessage(frame) {
		return
	}
	parse(frame, func(v version, s statement, group netip.Addr) {
		switch s {
		case asks:
			m.queried(v, group, now)
		case joins:
			if _, ok := m.members[group]; ok {
				m.members[group] = 0
			}
		}
	})
}

// mayBeMessage is the quick check that all other frames pay for: a multicast destination, and
// either IGMP or an IPv6 hop-by-hop header, which precedes ICMPv6.
func mayBeMessage(frame []byte) bool {
	if len(frame) < macHeaderLen+20 || frame[0]&1 == 0 {
		return false
	}
	return frame[12] == 0x08 && frame[macHeaderLen+9] == protoIGMP || frame[12] == 0x86 && frame[macHeaderLen+6] == protoHopByHop
}

func (m *Membership) join(group netip.Addr) {
	mac, _ := MACOf(group)
	if everybody(mac) {
		return
	}
	if _, ok := m.members[group]; !ok {
		if len(m.members) >= MaxMembers {
			m.overflow, m.over = true, 0
			return
		}
		m.Add(mac)
	}
	m.members[group] = 0
}

func (m *Membership) queried(v version, group netip.Addr, now time.Duration) {
	if group.IsValid() {
		if d, ok := m.members[group]; ok && d == 0 {
			m.deadline(group, now+MemberTime)
		}
		return
	}
	for g, d := range m.members {
		if d == 0 && g.Is4() == (v == 4) {
			m.deadline(g, now+MemberTime)
		}
	}
	if m.overflow && m.over == 0 {
		m.over = now + MemberTime
		m.soon(m.over)
	}
}

func (m *Membership) deadline(group netip.Addr, at time.Duration) {
	m.members[group] = at
	m.soon(at)
}

func (m *Membership) soon(at time.Duration) {
	if m.next == 0 || at < m.next {
		m.next = at
	}
}

// Next returns when Advance is due; ok is false when nothing is.
func (m *Membership) Next() (at time.Duration, ok bool) { return m.next, m.next != 0 }

// Advance forgets the members whose deadline has passed.
func (m *Membership) Advance(now time.Duration) {
	if m.next == 0 || now < m.next {
		return
	}
	m.next = 0
	for g, d := range m.members {
		switch {
		case d == 0:
		case d <= now:
			delete(m.members, g)
			mac, _ := MACOf(g)
			m.Remove(mac)
		default:
			m.soon(d)
		}
	}
	if m.over != 0 && m.over <= now {
		m.overflow, m.over = false, 0
	} else if m.over != 0 {
		m.soon(m.over)
	}
}

// Add makes the node a member of a MAC group that no report mentions, such as the solicited-node
// group of an address that netstack resolves. Additions are counted; each needs a Remove.
func (m *Membership) Add(mac arp.MAC) {
	m.macs[mac]++
	if m.macs[mac] == 1 && !everybody(mac) {
		g := GroupOf(mac)
		m.counts[g]++
		m.groups |= 1 << g
	}
}

// Remove undoes one Add.
func (m *Membership) Remove(mac arp.MAC) {
	switch m.macs[mac] {
	case 0:
		return
	case 1:
		delete(m.macs, mac)
	default:
		m.macs[mac]--
		return
	}
	if !everybody(mac) {
		g := GroupOf(mac)
		if m.counts[g]--; m.counts[g] == 0 {
			m.groups &^= 1 << g
		}
	}
}

// SetAll switches all-multicast mode, in which every multicast frame is taken.
func (m *Membership) SetAll(on bool) { m.all = on }

// All reports whether every multicast frame is taken, because of SetAll or because there are more
// than MaxMembers members.
func (m *Membership) All() bool { return m.all || m.overflow }

// Groups returns the fabric groups that the node should be in, as a bit mask: bit g for group g.
func (m *Membership) Groups() uint64 {
	if m.All() {
		return ^uint64(0)
	}
	return m.groups
}

// Accept is the receive filter: it reports whether a frame to the multicast address is wanted.
func (m *Membership) Accept(mac arp.MAC) bool {
	return everybody(mac) || m.All() || m.macs[mac] > 0
}

// Len returns the number of IP groups joined.
func (m *Membership) Len() int { return len(m.members) }

// Members calls f for each IP group joined.
func (m *Membership) Members(f func(netip.Addr)) {
	for g := range m.members {
		f(g)
	}
}
