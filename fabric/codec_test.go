package fabric

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// The golden vectors were written down by hand from the bit layouts of SPEC
// and of the package; they do not come from the encoders.

func TestVELODescriptorGolden(t *testing.T) { // VEL-2
	for _, c := range []struct {
		name   string
		d      VELODescriptor
		length int
		want   uint64
	}{
		{"unicast", VELODescriptor{To: Address{0x1234, 0x56}, UserTag: 0x2a, MTT: 9}, 120, 0x0078_a819_0056_1234},
		{"quiet", VELODescriptor{To: Address{0x1234, 0x56}, UserTag: 0x2a, MTT: 9, Quiet: true}, 120, 0x0078_a809_0056_1234},
		{"smallest", VELODescriptor{Quiet: true}, 1, 0x0001_0000_0000_0000},
		{"largest", VELODescriptor{To: Address{0xfffe, 0xff}, UserTag: 0x3f, MTT: 0xf}, 120, 0x0078_fc1f_00ff_fffe},
		{"broadcast", VELODescriptor{To: Address{NodeID(GroupAll), 3}, Multicast: true}, 2, 0x0002_0010_8003_003f},
	} {
		if got := c.d.Encode(c.length); got != c.want {
			t.Errorf("%s: encoded %#016x, want %#016x", c.name, got, c.want)
		}
		d, n, ok := DecodeVELODescriptor(c.want)
		if d != c.d || n != c.length || !ok {
			t.Errorf("%s: decoded %+v, %d, %t", c.name, d, n, ok)
		}
	}
}

func TestVELODescriptorRefuses(t *testing.T) { // VEL-1, VEL-2, VPD-1, NET-6
	const good = 0x0078_a819_0056_1234
	for _, bit := range []int{26, 27, 28, 29, 30, 37, 38, 39, 40, 41, 60, 61, 62, 63} {
		if _, _, ok := DecodeVELODescriptor(good | 1<<bit); ok {
			t.Errorf("reserved bit %d was accepted", bit)
		}
	}
	for name, v := range map[string]uint64{
		"no payload":        good &^ (0xfff << 48),
		"121 bytes":         good&^(0xfff<<48) | 121<<48,
		"VPID 256":          good&^(0x3ff<<16) | 256<<16,
		"multicast to 4660": good | 1<<31,
	} {
		if _, _, ok := DecodeVELODescriptor(v); ok {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestStatusGolden(t *testing.T) { // VEL-3
	for _, c := range []struct {
		name   string
		src    Address
		d      VELODescriptor
		length int
		valid  uint64
		want   Status
	}{
		{"first lap", Address{0x1234, 0x56}, VELODescriptor{UserTag: 0x2a, MTT: 9}, 120, 1, 0x8000_1e2a_9856_1234},
		{"second lap", Address{0x1234, 0x56}, VELODescriptor{UserTag: 0x2a, MTT: 9}, 120, 2, 0x0000_1e2a_9856_1234},
		{"quiet multicast", Address{1, 2}, VELODescriptor{Multicast: true, Quiet: true}, 1, 0, 0x0000_0040_0402_0001},
		{"largest", Address{0xfffe, 0xff}, VELODescriptor{UserTag: 0x3f, MTT: 0xf, Multicast: true}, 120, 1, 0x8000_1e3f_fcff_fffe},
	} {
		got := MakeStatus(c.src, c.d, c.length, c.valid)
		if got != c.want {
			t.Errorf("%s: %#016x, want %#016x", c.name, got, c.want)
		}
		if s := c.want; s.Source() != c.src || s.UserTag() != c.d.UserTag || s.MTT() != c.d.MTT || s.Multicast() != c.d.Multicast ||
			s.Interrupt() == c.d.Quiet || s.Len() != c.length || s.Parity() != c.valid&1 || !s.Check() {
			t.Errorf("%s: fields of %#016x are wrong", c.name, s)
		}
	}
}

func TestStatusCheck(t *testing.T) {
	good := MakeStatus(Address{7, 8}, VELODescriptor{}, 60, 1)
	if !good.Check() {
		t.Fatal("a good status word was refused")
	}
	for bit := 50; bit <= 62; bit++ {
		if (good | 1<<bit).Check() {
			t.Errorf("reserved bit %d was accepted", bit)
		}
	}
	for _, s := range []Status{
		good &^ (0xfff << 38),                           // no payload
		MakeStatus(Address{}, VELODescriptor{}, 121, 1), // too long
		MakeStatus(Address{1, 256}, VELODescriptor{}, 1, 1),
		0,
		1 << 63,
	} {
		if s.Check() {
			t.Errorf("%#016x was accepted", s)
		}
	}
}

func TestMessagePayloadNeverExceedsTheSlot(t *testing.T) { // VEL-1
	m := Message{Status: MakeStatus(Address{}, VELODescriptor{}, 0xfff, 1)}
	if n := len(m.Payload()); n != VELOMaxPayload {
		t.Errorf("a hostile length gives %d bytes", n)
	}
}

func TestRMADescriptorGolden(t *testing.T) { // RMA-2, RMA-4
	for _, c := range []struct {
		name string
		d    RMADescriptor
		want [3]uint64
	}{
		{"put", RMADescriptor{Command: Put, Mask: NotifyRequester, To: Address{0x1234, 0x56}, Length: 65549, Local: 0x1_0002, Remote: 0x3_0004},
			[3]uint64{0x0002_0019_0456_1234, 0x1_0002, 0x3_0004}},
		{"get", RMADescriptor{Command: Get, Mask: NotifyResponder | NotifyCompleter, To: Address{0xfffe, 0xff}, Length: RMAMaxLength, Local: 1, Remote: 2},
			[3]uint64{0x00ff_fffe_c8ff_fffe, 1, 2}},
		{"smallest", RMADescriptor{Command: Put, Length: 1}, [3]uint64{0x0400_0000, 0, 0}},
		{"immediate", RMADescriptor{Command: ImmediatePut, Mask: 7, To: Address{1, 2}, Data: 0x8877_6655_4433_2211, Enable: 0xa5, Remote: RegisterNLA(RegScratch)},
			[3]uint64{0xa500_0001_cc02_0001, 0x8877_6655_4433_2211, 0x8000_0000_0000_0010}},
	} {
		if got := c.d.Encode(); got != c.want {
			t.Errorf("%s: encoded %#016x, want %#016x", c.name, got, c.want)
		}
		if d, ok := DecodeRMADescriptor(c.want); d != c.d || !ok {
			t.Errorf("%s: decoded %+v, %t", c.name, d, ok)
		}
	}
}

func TestRMADescriptorRefuses(t *testing.T) { // RMA-2, RMA-4
	for name, w := range map[string][3]uint64{
		"put with byte enables":     {0x0100_0000_0400_0000, 0, 0},
		"immediate with a length":   {0xff00_0002_0c00_0000, 0, 0},
		"immediate without enables": {0x0000_0000_0c00_0000, 0, 0},
		"command 0":                 {0, 0, 0},
		"command 5":                 {0x1400_0000, 0, 0},
		"VPID 256":                  {0x0500_0000, 0, 0},
	} {
		if d, ok := DecodeRMADescriptor(w); ok {
			t.Errorf("%s was accepted as %+v", name, d)
		}
	}
}

func TestRMADescriptorCheck(t *testing.T) { // RMA-2, RMA-5
	good := RMADescriptor{Command: Put, Length: 1}
	for _, c := range []struct {
		name   string
		change func(*RMADescriptor)
		want   error
	}{
		{"good", func(*RMADescriptor) {}, nil},
		{"8 MiB", func(d *RMADescriptor) { d.Length = RMAMaxLength }, nil},
		{"any mask", func(d *RMADescriptor) { d.Mask = 7 }, nil},
		{"length 0", func(d *RMADescriptor) { d.Length = 0 }, ErrLength},
		{"length -1", func(d *RMADescriptor) { d.Length = -1 }, ErrLength},
		{"8 MiB + 1", func(d *RMADescriptor) { d.Length = RMAMaxLength + 1 }, ErrLength},
		{"no byte enabled", func(d *RMADescriptor) { d.Command, d.Enable = ImmediatePut, 0 }, ErrLength},
		{"immediate", func(d *RMADescriptor) { d.Command, d.Enable = ImmediatePut, 1 }, nil},
		{"no command", func(d *RMADescriptor) { d.Command = 0 }, ErrRange},
		{"command 4", func(d *RMADescriptor) { d.Command = ImmediatePut + 1 }, ErrRange},
		{"mask 8", func(d *RMADescriptor) { d.Mask = 8 }, ErrRange},
		{"VPID 256", func(d *RMADescriptor) { d.To.VPID = 256 }, ErrRange},
	} {
		d := good
		c.change(&d)
		if err := d.Check(); err != c.want {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
}

func TestNotificationGolden(t *testing.T) { // RMA-6
	for _, c := range []struct {
		name string
		n    Notification
		want [2]uint64
	}{
		{"completer of a put", Notification{Command: Put, Kind: KindCompleter, Peer: Address{0x1234, 0x56}, Local: 0xabcd, Count: 65549},
			[2]uint64{0x0100_0d12_3415_8031, 0xabcd}},
		{"fault", Notification{Command: Get, Kind: KindRequester, Fault: FaultRights, Peer: Address{0xfffe, 0xff}, Local: 1, Count: RMAMaxLength},
			[2]uint64{0x8000_00ff_fe3f_c112, 1}},
		{"responder", Notification{Command: Get, Kind: KindResponder, Peer: Address{1, 2}, Count: 1}, [2]uint64{0x0000_0100_0100_8022, 0}},
		{"immediate", Notification{Command: ImmediatePut, Kind: KindCompleter, Peer: Address{1, 2}, Count: 8}, [2]uint64{0x0000_0800_0100_8033, 0}},
	} {
		if got := c.n.Encode(); got != c.want {
			t.Errorf("%s: encoded %#016x, want %#016x", c.name, got, c.want)
		}
		if n, ok := DecodeNotification(c.want); n != c.n || !ok {
			t.Errorf("%s: decoded %+v, %t", c.name, n, ok)
		}
	}
}

func TestNotificationRefuses(t *testing.T) {
	good := Notification{Command: Put, Kind: KindCompleter, Peer: Address{1, 2}, Count: 1}
	for name, change := range map[string]func(*Notification){
		"no command": func(n *Notification) { n.Command = 0 },
		"command 4":  func(n *Notification) { n.Command = 4 },
		"no kind":    func(n *Notification) { n.Kind = 0 },
		"fault 8":    func(n *Notification) { n.Fault = faultEnd },
		"VPID 256":   func(n *Notification) { n.Peer.VPID = 256 },
		"no bytes":   func(n *Notification) { n.Count = 0 },
		"8 MiB + 1":  func(n *Notification) { n.Count = RMAMaxLength + 1 },
	} {
		n := good
		change(&n)
		if _, ok := DecodeNotification(n.Encode()); ok {
			t.Errorf("%s was accepted", name)
		}
	}
}

func TestNLAGolden(t *testing.T) {
	for _, c := range []struct {
		window int
		gen    uint16
		offset uint64
		want   NLA
		text   string
	}{
		{0, 0, 0, 0, "0.0+0x0"},
		{1, 1, 0x1234, 0x0001_0040_0000_1234, "1.1+0x1234"},
		{1023, 0x7fff, MaxWindow - 1, 0x7fff_ffff_ffff_ffff, "1023.32767+0x3fffffffff"},
	} {
		a := MakeNLA(c.window, c.gen, c.offset)
		if a != c.want || a.Window() != c.window || a.Generation() != c.gen || a.Offset() != c.offset || a.String() != c.text {
			t.Errorf("%d.%d+%d: %#016x %v, want %#016x %s", c.window, c.gen, c.offset, uint64(a), a, uint64(c.want), c.text)
		}
		if _, ok := a.Register(); ok {
			t.Errorf("%v names a register", a)
		}
	}
}

func TestRegisterNLA(t *testing.T) { // REG-1
	for r := range RegisterCount {
		a := RegisterNLA(r)
		if want := NLA(1<<63 | uint64(r)*8); a != want {
			t.Errorf("%v: %#x, want %#x", r, uint64(a), uint64(want))
		}
		if got, ok := a.Register(); got != r || !ok || a.String() != "reg:"+r.String() {
			t.Errorf("%v comes back as %v, %t, %v", r, got, ok, a)
		}
		if _, ok := (a + 1).Register(); ok {
			t.Errorf("%v + 1 byte names a register", r)
		}
		if got, ok := RegisterByName(r.String()); got != r || !ok {
			t.Errorf("name %q finds %v, %t", r.String(), got, ok)
		}
	}
	for _, a := range []NLA{RegisterNLA(RegisterCount), 1<<63 | 1<<62, ^NLA(7)} {
		if r, ok := a.Register(); ok {
			t.Errorf("%#x names register %v", uint64(a), r)
		}
	}
	if r, ok := RegisterByName("velo"); ok {
		t.Errorf("half a name finds %v", r)
	}
	if RegScratch.Writable() != true || RegGroups.Writable() != true || RegVELOSent.Writable() || RegNodeID.Writable() {
		t.Error("other registers than scratch and groups are writable")
	}
}

func TestMergeImmediate(t *testing.T) { // RMA-4
	const old, data = 0x1111_1111_1111_1111, 0x8877_6655_4433_2211
	for enable, want := range map[uint8]uint64{
		0x00: old,
		0x01: 0x1111_1111_1111_1111,
		0x02: 0x1111_1111_1111_2211,
		0x80: 0x8811_1111_1111_1111,
		0xa5: 0x8811_6611_1133_1111,
		0xff: data,
	} {
		if got := MergeImmediate(old, data, enable); got != want {
			t.Errorf("enable %#02x: %#016x, want %#016x", enable, got, want)
		}
	}
}

func TestSplitVectors(t *testing.T) { // RMA-3, RMA-7, RMA-8, MAT-1, MAT-3
	for _, c := range []struct{ n, packets, last int }{
		{1, 1, 1}, {495, 1, 495}, {496, 1, 496}, {497, 2, 1}, {992, 2, 496}, {1514, 4, 26}, {9014, 19, 86},
		{65549, 133, 77}, {65550, 133, 78}, {8388608, 16913, 256},
	} {
		start := MakeNLA(5, 6, 7)
		if got := RMAPackets(c.n); got != c.packets {
			t.Errorf("%d bytes: %d packets, want %d", c.n, got, c.packets)
		}
		if got, want := LastPacket(start, c.n), start+NLA(c.n-c.last); got != want {
			t.Errorf("%d bytes: last packet at %v, want %v", c.n, got, want)
		}
	}
}

func TestLastPacketIsTheThesisFormula(t *testing.T) { // MAT-1
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, RMAMaxLength).Draw(t, "length")
		start := MakeNLA(rapid.IntRange(0, Windows-1).Draw(t, "window"), 3, rapid.Uint64Range(0, MaxWindow-RMAMaxLength).Draw(t, "offset"))
		want := start + NLA(n) - NLA(n%496)
		if n%496 == 0 {
			want = start + NLA(n) - 496
		}
		if got := LastPacket(start, n); got != want {
			t.Fatalf("%v, want %v", got, want)
		}
		if rest := n - int(LastPacket(start, n)-start); rest < 1 || rest > RMAMTU || RMAPackets(n) != (n-rest)/RMAMTU+1 {
			t.Fatalf("the last of %d packets has %d bytes", RMAPackets(n), rest)
		}
	})
}

func TestNodeIDParts(t *testing.T) { // NET-5
	for _, c := range []struct {
		id             NodeID
		segment, local int
	}{{0, 0, 0}, {1023, 0, 1023}, {1024, 1, 0}, {MaxNodeID, 63, 1022}} {
		if c.id.Segment() != c.segment || c.id.Local() != c.local {
			t.Errorf("%d is %d, %d", c.id, c.id.Segment(), c.id.Local())
		}
	}
}

// Whatever the decoders accept is what the encoders give: no two words mean
// the same, and no accepted field is outside its range.

func FuzzVELODescriptor(f *testing.F) { // VEL-2
	f.Add(uint64(0x0078_a819_0056_1234))
	f.Add(uint64(0x0002_0010_8003_003f))
	f.Fuzz(func(t *testing.T, v uint64) {
		d, n, ok := DecodeVELODescriptor(v)
		if !ok {
			return
		}
		if got := d.Encode(n); got != v || !d.Valid() || n < 1 || n > VELOMaxPayload {
			t.Errorf("%#016x decodes to %+v, %d, which encodes to %#016x", v, d, n, got)
		}
	})
}

func FuzzStatus(f *testing.F) { // VEL-3
	f.Add(uint64(0x8000_0040_0402_0001))
	f.Fuzz(func(t *testing.T, v uint64) {
		s := Status(v)
		if (&Message{Status: s}).Payload(); !s.Check() {
			return
		}
		d := VELODescriptor{UserTag: s.UserTag(), MTT: s.MTT(), Multicast: s.Multicast(), Quiet: !s.Interrupt()}
		if got := MakeStatus(s.Source(), d, s.Len(), s.Parity()); got != s {
			t.Errorf("%#016x is made of parts that make %#016x", v, got)
		}
	})
}

func FuzzRMADescriptor(f *testing.F) { // RMA-2
	f.Add(uint64(0x0002_0019_0456_1234), uint64(1), uint64(2))
	f.Add(uint64(0xa500_0001_cc02_0001), uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b, c uint64) {
		w := [3]uint64{a, b, c}
		if d, ok := DecodeRMADescriptor(w); ok && (d.Encode() != w || d.Check() != nil) {
			t.Errorf("%#016x decodes to %+v", w, d)
		}
	})
}

func FuzzNotification(f *testing.F) { // RMA-6
	f.Add(uint64(0x0100_0d12_3415_8031), uint64(1))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		w := [2]uint64{a, b}
		if n, ok := DecodeNotification(w); ok && n.Encode() != w {
			t.Errorf("%#016x decodes to %+v", w, n)
		}
	})
}

func FuzzNLA(f *testing.F) {
	f.Add(uint64(0x0001_0040_0000_1234))
	f.Add(uint64(RegisterNLA(RegScratch)))
	f.Fuzz(func(t *testing.T, v uint64) {
		a := NLA(v)
		if r, ok := a.Register(); ok {
			if RegisterNLA(r) != a || r >= RegisterCount {
				t.Errorf("%#x is register %v", v, r)
			}
		} else if a>>63 == 0 && MakeNLA(a.Window(), a.Generation(), a.Offset()) != a {
			t.Errorf("%#x is %v", v, a)
		}
		_ = a.String()
	})
}

func TestNames(t *testing.T) {
	seen := make(map[string]bool)
	check := func(in bool, name string) {
		t.Helper()
		if in != !strings.Contains(name, "(") || name == "" || seen[name] {
			t.Errorf("bad name %q", name)
		}
		seen[name] = true
	}
	for f := range faultEnd + 1 {
		check(f < faultEnd, f.String())
	}
	for k := range KindCompleter + 2 {
		check(k >= KindRequester && k <= KindCompleter, k.String())
	}
	for c := range ImmediatePut + 2 {
		check(c >= Put && c <= ImmediatePut, c.String())
	}
	for u := range UnitRMA + 2 {
		check(u <= UnitRMA, u.String())
	}
	check(false, RegisterCount.String())
	if a := (Address{65534, 255}); a.String() != "65534/255" || (RemoteRead|RemoteWrite).String() != "rw" || RemoteWrite.String() != "-w" {
		t.Error("address or rights print wrongly")
	}
}
