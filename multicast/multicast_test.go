package multicast

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"exnet/arp"
	"exnet/fabric"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func ip(s string) netip.Addr { return netip.MustParseAddr(s) }

func mac(s string) arp.MAC {
	m, ok := MACOf(ip(s))
	if !ok {
		panic(s)
	}
	return m
}

// MCS-1: the mappings of RFC 1112 and RFC 2464, and the example of the thesis.
func TestMCS1Address(t *testing.T) {
	for group, want := range map[string]string{
		"224.0.0.1":           "01:00:5e:00:00:01",
		"239.255.255.255":     "01:00:5e:7f:ff:ff",
		"225.128.1.2":         "01:00:5e:00:01:02",
		"ff02:dead:beef::1:3": "33:33:00:01:00:03",
		"ff02::1:ff07:1":      "33:33:ff:07:00:01",
		"255.255.255.255":     "ff:ff:ff:ff:ff:ff",
	} {
		if got := mac(group).String(); got != want {
			t.Errorf("%s: %s, want %s", group, got, want)
		}
	}
	for _, a := range []string{"10.0.0.1", "fe80::1", "::", "::ffff:224.0.0.1"} {
		if m, ok := MACOf(ip(a)); ok {
			t.Errorf("%s is no group, but has %v", a, m)
		}
	}
}

// MCS-1: the fabric group of some addresses. These vectors belong to the protocol between nodes:
// changing one splits the fabric.
func TestMCS1GroupOf(t *testing.T) {
	for name, c := range map[string]struct {
		mac  arp.MAC
		want fabric.Group
	}{
		"broadcast":       {arp.Broadcast, 63},
		"all hosts":       {mac("224.0.0.1"), 63},
		"mDNS":            {mac("224.0.0.251"), 63},
		"all nodes":       {mac("ff02::1"), 63},
		"spanning tree":   {arp.MAC{0x01, 0x80, 0xc2}, 63},
		"239.1.2.3":       {mac("239.1.2.3"), 10},
		"239.1.2.4":       {mac("239.1.2.4"), 49},
		"ff05::1:3":       {mac("ff05::1:3"), 33},
		"solicited node1": {mac("ff02::1:ff07:1"), 57},
	} {
		if got := GroupOf(c.mac); got != c.want {
			t.Errorf("%s: group %d, want %d", name, got, c.want)
		}
	}
	// Consecutive groups, the usual choice, spread over all fabric groups.
	var count [fabric.GroupCount]int
	for i := range 6300 {
		count[GroupOf(arp.MAC{1, 0, 0x5e, 1, byte(i >> 8), byte(i)})]++
	}
	if slices.Min(count[:63]) < 80 || slices.Max(count[:63]) > 120 || count[63] != 0 {
		t.Errorf("6300 groups spread as %v", count)
	}
}

// igmp builds a frame with the message in an IPv4 packet with the router alert option.
func igmp(msg ...byte) []byte {
	binary.BigEndian.PutUint16(msg[2:], 0)
	binary.BigEndian.PutUint16(msg[2:], checksum(msg, 0))
	f := []byte{1, 0, 0x5e, 0, 0, 22, 2, 0, 0, 0, 0, 1, 8, 0, 0x46, 0xc0, 0, byte(24 + len(msg)), 0, 0, 0x40, 0, 1, 2, 0, 0, 10, 0, 0, 1, 224, 0, 0, 22, 0x94, 4, 0, 0}
	return append(f, msg...)
}

// mld does the same in IPv6 with a hop-by-hop header.
func mld(msg ...byte) []byte {
	f := []byte{0x33, 0x33, 0, 0, 0, 22, 2, 0, 0, 0, 0, 1, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(8 + len(msg)), 0, 1}
	src, dst := ip("fe80::1").As16(), ip("ff02::16").As16()
	f = append(append(append(f, src[:]...), dst[:]...), 58, 0, 5, 2, 0, 0, 1, 0)
	msg[2], msg[3] = 0, 0
	binary.BigEndian.PutUint16(msg[2:], checksum(msg, pseudoSum(append(src[:], dst[:]...), len(msg))))
	return append(f, msg...)
}

func group(a string) []byte { return ip(a).AsSlice() }

func record(kind byte, a string, sources ...string) []byte {
	b := append([]byte{kind, 0, 0, byte(len(sources))}, group(a)...)
	for _, s := range sources {
		b = append(b, ip(s).AsSlice()...)
	}
	return b
}

func report(typ byte, records ...[]byte) []byte {
	return append([]byte{typ, 0, 0, 0, 0, 0, 0, byte(len(records))}, slices.Concat(records...)...)
}

type said struct {
	v     version
	s     statement
	group string
}

func read(frame []byte) (got []said) {
	parse(frame, func(v version, s statement, g netip.Addr) {
		name := ""
		if g.IsValid() {
			name = g.String()
		}
		got = append(got, said{v, s, name})
	})
	return got
}

// MCS-1: every message of the five protocol versions is understood.
func TestMCS1Messages(t *testing.T) {
	v1 := func(typ byte, g string) []byte { return append([]byte{typ, 0, 0, 0, 0, 0, 0, 0}, group(g)...) }
	for name, c := range map[string]struct {
		frame []byte
		want  []said
	}{
		"v1 report":        {igmp(append([]byte{0x12, 0, 0, 0}, group("239.1.1.1")...)...), []said{{4, joins, "239.1.1.1"}}},
		"v2 report":        {igmp(append([]byte{0x16, 0, 0, 0}, group("239.1.1.1")...)...), []said{{4, joins, "239.1.1.1"}}},
		"v2 leave":         {igmp(append([]byte{0x17, 0, 0, 0}, group("239.1.1.1")...)...), []said{{4, leaves, "239.1.1.1"}}},
		"general query":    {igmp(0x11, 100, 0, 0, 0, 0, 0, 0), []said{{4, asks, ""}}},
		"group query":      {igmp(append([]byte{0x11, 10, 0, 0}, group("239.1.1.1")...)...), []said{{4, asks, "239.1.1.1"}}},
		"unicast 'group'":  {igmp(append([]byte{0x16, 0, 0, 0}, group("10.1.1.1")...)...), nil},
		"unknown type":     {igmp(append([]byte{0x13, 0, 0, 0}, group("239.1.1.1")...)...), nil},
		"v3 empty":         {igmp(report(0x22)...), nil},
		"v3 exclude":       {igmp(report(0x22, record(2, "239.1.1.1"), record(4, "239.1.1.2", "10.0.0.9"))...), []said{{4, joins, "239.1.1.1"}, {4, joins, "239.1.1.2"}}},
		"v3 include":       {igmp(report(0x22, record(1, "239.1.1.1", "10.0.0.9"), record(3, "239.1.1.2"))...), []said{{4, joins, "239.1.1.1"}, {4, leaves, "239.1.1.2"}}},
		"v3 allow, block":  {igmp(report(0x22, record(5, "239.1.1.1", "10.0.0.9"), record(6, "239.1.1.2", "10.0.0.9"))...), []said{{4, joins, "239.1.1.1"}}},
		"v3 unknown kind":  {igmp(report(0x22, record(9, "239.1.1.1"), record(2, "239.1.1.2"))...), []said{{4, joins, "239.1.1.2"}}},
		"v3 auxiliary":     {igmp(report(0x22, []byte{2, 1, 0, 0, 239, 1, 1, 1, 9, 9, 9, 9}, record(2, "239.1.1.2"))...), []said{{4, joins, "239.1.1.1"}, {4, joins, "239.1.1.2"}}},
		"v3 cut record":    {igmp(append(report(0x22, record(2, "239.1.1.1")), 2, 0, 0, 9, 239, 1, 1, 2)...), []said{{4, joins, "239.1.1.1"}}},
		"MLDv1 report":     {mld(v1(131, "ff05::1:3")...), []said{{6, joins, "ff05::1:3"}}},
		"MLDv1 done":       {mld(v1(132, "ff05::1:3")...), []said{{6, leaves, "ff05::1:3"}}},
		"MLD query":        {mld(v1(130, "::")...), []said{{6, asks, ""}}},
		"MLD group query":  {mld(v1(130, "ff05::1:3")...), []said{{6, asks, "ff05::1:3"}}},
		"MLDv2 report":     {mld(report(143, record(4, "ff05::1:3"), record(3, "ff05::1:4"), record(1, "ff05::1:5", "fe80::9"))...), []said{{6, joins, "ff05::1:3"}, {6, leaves, "ff05::1:4"}, {6, joins, "ff05::1:5"}}},
		"short MLDv1":      {mld(131, 0, 0, 0, 0, 0, 0, 0), nil},
		"neighbour advert": {mld(v1(136, "ff05::1:3")...), nil},
	} {
		if got := read(c.frame); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
		if len(c.want) > 0 && !mayBeMessage(c.frame) {
			t.Errorf("%s is overlooked", name)
		}
	}
	// A flipped bit anywhere after the IP header breaks a checksum or changes no statement.
	for _, f := range [][]byte{igmp(report(0x22, record(2, "239.1.1.1"))...), mld(report(143, record(4, "ff05::1:3"))...)} {
		want := read(f)
		for i := macHeaderLen + 24; i < len(f); i++ {
			bad := slices.Clone(f)
			bad[i] ^= 4
			if got := read(bad); got != nil && !slices.Equal(got, want) {
				t.Errorf("with byte %d wrong: %v", i, got)
			}
		}
	}
	fragment := igmp(append([]byte{0x16, 0, 0, 0}, group("239.1.1.1")...)...)
	fragment[macHeaderLen+6] = 0x20
	if got := read(fragment); got != nil {
		t.Errorf("a fragment says %v", got)
	}
}

var join1 = igmp(report(0x22, record(4, "239.1.1.1"))...)

// MCS-1: a member stays without queries, and goes after a leave or an unanswered query.
func TestMCS1MembershipTimers(t *testing.T) {
	leave := igmp(report(0x22, record(3, "239.1.1.1"))...)
	query := AppendIGMPQuery(nil, arp.MAC{2})
	heard := igmp(append([]byte{0x16, 0, 0, 0}, group("239.1.1.1")...)...)
	m1 := mac("239.1.1.1")
	type step struct {
		at   time.Duration
		do   func(*Membership, time.Duration)
		want bool
	}
	sent := func(f []byte) func(*Membership, time.Duration) {
		return func(m *Membership, now time.Duration) { m.Sent(f, now) }
	}
	delivered := func(f []byte) func(*Membership, time.Duration) {
		return func(m *Membership, now time.Duration) { m.Delivered(f, now) }
	}
	wait := func(*Membership, time.Duration) {}
	for name, steps := range map[string][]step{
		"no query":        {{0, sent(join1), true}, {1000 * time.Hour, wait, true}},
		"leave":           {{0, sent(join1), true}, {1, sent(leave), true}, {LeaveTime, wait, true}, {LeaveTime + 1, wait, false}},
		"left and back":   {{0, sent(join1), true}, {1, sent(leave), true}, {2, sent(join1), true}, {time.Hour, wait, true}},
		"silent":          {{0, sent(join1), true}, {1, delivered(query), true}, {125 * time.Second, delivered(query), true}, {MemberTime, wait, true}, {MemberTime + 1, wait, false}},
		"answers":         {{0, sent(join1), true}, {1, delivered(query), true}, {2, sent(join1), true}, {time.Hour, wait, true}},
		"other answers":   {{0, sent(join1), true}, {1, delivered(query), true}, {2, delivered(heard), true}, {time.Hour, wait, true}},
		"other joins":     {{0, delivered(heard), false}},
		"MLD query":       {{0, sent(join1), true}, {1, delivered(AppendMLDQuery(nil, arp.MAC{2}, ip("fe80::9"))), true}, {time.Hour, wait, true}},
		"leave, no join":  {{0, sent(leave), false}, {time.Hour, wait, false}},
		"leave and query": {{0, sent(join1), true}, {1, sent(leave), true}, {2, delivered(query), true}, {LeaveTime + 1, wait, false}},
	} {
		m := NewMembership()
		for i, s := range steps {
			s.do(m, s.at)
			m.Advance(s.at)
			in := m.Groups()>>GroupOf(m1)&1 == 1
			if m.Accept(m1) != s.want || in != s.want {
				t.Errorf("%s, step %d: accepted %v, in fabric group %v, want %v", name, i, m.Accept(m1), in, s.want)
			}
		}
	}
}

// MCS-1: broadcast and control groups need no membership. The filter drops other groups.
func TestMCS1Filter(t *testing.T) {
	m := NewMembership()
	for _, g := range []string{"255.255.255.255", "224.0.0.1", "224.0.0.251", "ff02::1"} {
		if !m.Accept(mac(g)) {
			t.Errorf("%s is dropped", g)
		}
	}
	m.Sent(igmp(report(0x22, record(4, "224.0.0.251"))...), 0)
	if m.Len() != 0 || m.Groups() != 1<<63 {
		t.Errorf("a control group is tracked: %d, %#x", m.Len(), m.Groups())
	}
	// 225.1.1.1 and 226.1.1.1 share a MAC address: leaving one keeps the other.
	m.Sent(igmp(report(0x22, record(4, "225.1.1.1"), record(4, "226.1.1.1"))...), 0)
	m.Sent(igmp(report(0x22, record(3, "225.1.1.1"))...), 0)
	m.Advance(LeaveTime)
	if !m.Accept(mac("226.1.1.1")) || m.Len() != 1 {
		t.Error("leaving one of two groups with one MAC address lost both")
	}
	if m.Accept(mac("239.9.9.9")) {
		t.Error("a foreign group is accepted")
	}
	m.SetAll(true)
	if !m.Accept(mac("239.9.9.9")) || m.Groups() != ^uint64(0) {
		t.Error("all-multicast mode filters")
	}
	m.SetAll(false)
	if m.Accept(mac("239.9.9.9")) {
		t.Error("all-multicast mode stays on")
	}
	solicited := mac("ff02::1:ff07:1")
	m.Add(solicited)
	m.Add(solicited)
	m.Remove(solicited)
	if !m.Accept(solicited) {
		t.Error("one of two additions taken back removes both")
	}
	m.Remove(solicited)
	m.Remove(solicited)
	if m.Accept(solicited) || bits.OnesCount64(m.Groups()) != 2 {
		t.Errorf("groups %#x", m.Groups())
	}
}

// Above the bound the node takes everything, until a query shows that there are fewer members.
func TestMembershipOverflow(t *testing.T) {
	m := NewMembership()
	for i := range MaxMembers + 1 {
		m.Sent(igmp(append([]byte{0x16, 0, 0, 0}, 239, 1, byte(i>>8), byte(i))...), 0)
	}
	if m.Len() != MaxMembers || !m.All() || !m.Accept(mac("239.77.0.1")) {
		t.Fatalf("%d members, all: %v", m.Len(), m.All())
	}
	m.Delivered(AppendIGMPQuery(nil, arp.MAC{2}), 0)
	m.Sent(join1, time.Second)
	m.Advance(MemberTime)
	if m.All() || m.Len() != 1 || len(m.macs) != 1 || !m.Accept(mac("239.1.1.1")) {
		t.Errorf("%d members, all: %v", m.Len(), m.All())
	}
}

// The state always equals one built from scratch.
func TestMembershipProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := NewMembership()
		var now time.Duration
		model := map[string]time.Duration{} // deadline; 0: none
		name := rapid.Custom(func(t *rapid.T) string {
			return netip.AddrFrom4([4]byte{byte(rapid.IntRange(225, 226).Draw(t, "a")), 1, 1, byte(rapid.IntRange(0, 200).Draw(t, "b"))}).String()
		})
		t.Repeat(map[string]func(*rapid.T){
			"join": func(t *rapid.T) {
				g := name.Draw(t, "group")
				m.Sent(igmp(report(0x22, record(4, g))...), now)
				model[g] = 0
			},
			"leave": func(t *rapid.T) {
				g := name.Draw(t, "group")
				m.Sent(igmp(report(0x22, record(3, g))...), now)
				if d, ok := model[g]; ok && (d == 0 || d > now+LeaveTime) {
					model[g] = now + LeaveTime
				}
			},
			"query": func(t *rapid.T) {
				m.Delivered(AppendIGMPQuery(nil, arp.MAC{2}), now)
				for g, d := range model {
					if d == 0 {
						model[g] = now + MemberTime
					}
				}
			},
			"wait": func(t *rapid.T) {
				now += time.Duration(rapid.IntRange(0, 200000).Draw(t, "ms")) * time.Millisecond
				m.Advance(now)
				for g, d := range model {
					if d != 0 && d <= now {
						delete(model, g)
					}
				}
			},
			"": func(t *rapid.T) {
				groups := uint64(1 << 63)
				macs := map[arp.MAC]bool{}
				for g := range model {
					groups |= 1 << GroupOf(mac(g))
					macs[mac(g)] = true
				}
				if m.Groups() != groups || len(m.macs) != len(macs) || m.Len() != len(model) {
					t.Fatalf("groups %#x, want %#x; %d MACs, want %d", m.Groups(), groups, len(m.macs), len(macs))
				}
				if at, ok := m.Next(); ok && at <= now {
					t.Fatalf("due at %v, now %v", at, now)
				}
			},
		})
	})
}

func TestMembershipAllocates(t *testing.T) {
	m := NewMembership()
	f := make([]byte, 1514)
	f[0], f[12], f[13], f[23] = 1, 8, 0, 17
	v6 := AppendMLDQuery(nil, arp.MAC{2}, ip("fe80::9"))
	if n := testing.AllocsPerRun(100, func() { m.Sent(f, 1); m.Delivered(v6, 1); m.Accept(arp.MAC{1, 0, 0x5e, 1}); m.Advance(1) }); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}

func FuzzSnoop(f *testing.F) {
	f.Add(join1)
	f.Add(mld(report(143, record(4, "ff05::1:3", "fe80::9"), record(3, "ff05::1:4"))...))
	f.Add(AppendIGMPQuery(nil, arp.MAC{2}))
	f.Add(AppendMLDQuery(nil, arp.MAC{2}, ip("fe80::9")))
	f.Fuzz(func(t *testing.T, b []byte) {
		m := NewMembership()
		m.Sent(b, 1)
		m.Delivered(b, 2)
		if m.Len() > len(b)/8 {
			t.Fatalf("%d bytes made %d members", len(b), m.Len())
		}
		// Whatever the checksum, the record parsers stay inside the message.
		if len(b) >= 24 {
			parseIGMP(b, func(version, statement, netip.Addr) {})
			parseMLD(b, func(version, statement, netip.Addr) {})
		}
		m.Advance(time.Hour)
	})
}
