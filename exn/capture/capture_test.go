package capture

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"exnet/arp"
	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
	"exnet/test/debroot"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// tap is a capture source for tests.
type tap struct{ f func(*exn.CaptureFrame) }

func (t *tap) Capture(f func(*exn.CaptureFrame)) (stop func()) {
	t.f = f
	return func() { t.f = nil }
}

var about = About{Program: "exn-tun test", Name: "exn0", Description: "node 7 of a test", Node: 7}

func mac(n fabric.NodeID) arp.MAC { return arp.DefaultPrefix.MAC(n) }

// ip4 makes an IPv4 frame from node 7 to node 3 with the given payload, at a fragment offset in
// units of 8 bytes.
func ip4(protocol uint8, offset uint16, payload ...byte) []byte {
	to, from := mac(3), mac(7)
	b := append(append(to[:], from[:]...), 0x08, 0)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(payload)))
	b = append(b, 0, 1)
	b = binary.BigEndian.AppendUint16(b, offset)
	b = append(b, 64, protocol, 0, 0, 10, 2, 0, 7, 10, 2, 0, 3)
	return append(b, payload...)
}

// ip6 makes an IPv6 frame with the given bytes after the fixed header.
func ip6(next uint8, rest ...byte) []byte {
	b := append(ip4(0, 0)[:12], 0x86, 0xdd, 0x60, 0, 0, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(len(rest)))
	b = append(b, next, 64)
	from, to := netip.MustParseAddr("fd00::7").As16(), netip.MustParseAddr("fd00::3").As16()
	return append(append(append(b, from[:]...), to[:]...), rest...)
}

func tcp(from, to uint16) []byte {
	b := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to)
	return append(b, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0)
}

func udp(from, to uint16) []byte {
	return append(binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(nil, from), to), 0, 8, 0, 0)
}

func arpRequest() []byte {
	p := arp.Packet{Op: arp.Request, SenderMAC: mac(7), Sender: netip.MustParseAddr("10.2.0.7"), Target: netip.MustParseAddr("10.2.0.3")}
	return p.AppendFrame(nil, arp.Broadcast)
}

// frames returns one frame of each kind.
func frames() map[string]*exn.CaptureFrame {
	super := append(ip4(protoTCP, 0, tcp(43210, 5201)...), make([]byte, 60000)...)
	// after hop-by-hop options
	extended := append([]byte{protoTCP, 0, 1, 4, 0, 0, 0, 0}, tcp(1, 2)...)
	return map[string]*exn.CaptureFrame{
		"super": {Sent: true, Peer: 3, Rendezvous: true, Frame: super,
			VNet: exteth.VNet{Flags: exteth.NeedsChecksum, GSO: exteth.GSOTCPv4, GSOSize: 1448, CsumStart: 34, CsumOffset: 16}},
		"answer":   {Peer: 3, Frame: ip4(protoTCP, 0, tcp(5201, 43210)...)},
		"datagram": {Peer: 4, Frame: ip4(protoUDP, 0, udp(53, 5353)...)},
		"fragment": {Peer: 4, Frame: ip4(protoUDP, 100, udp(53, 5353)...)},
		"ping":     {Sent: true, Peer: 3, Frame: ip4(protoICMP, 0, 8, 0, 0, 0)},
		"arp":      {Sent: true, Multicast: true, Group: 63, Frame: arpRequest()},
		"ip6":      {Sent: true, Peer: 3, Frame: ip6(0, extended...)},
		"nd":       {Peer: 3, Multicast: true, Group: 5, Frame: ip6(protoICMPv6, 135, 0, 0, 0)},
		"cut":      {Peer: 3, Frame: ip4(protoTCP, 0, tcp(1, 2)...)[:30]},
		"strange":  {Peer: 3, Frame: append(ip4(0, 0)[:12], 0x88, 0xb5)},
	}
}

func TestFilter(t *testing.T) {
	for text, want := range map[string]string{
		"":                                  "answer arp cut datagram fragment ip6 nd ping strange super",
		"tcp":                               "answer ip6 super",
		"udp":                               "datagram fragment",
		"icmp":                              "ping",
		"icmp6":                             "nd",
		"arp":                               "arp",
		"ip":                                "answer cut datagram fragment ping super",
		"ip6":                               "ip6 nd",
		"port 5201":                         "answer super",
		"port 53":                           "datagram",
		"port 2":                            "ip6",
		"host 10.2.0.3":                     "answer arp datagram fragment ping super",
		"host fd00::7":                      "ip6 nd",
		"host 10.2.0.4":                     "",
		"net 10.2.0.0/24 and not ip":        "arp",
		"node 4":                            "datagram fragment",
		"node 0":                            "",
		"in and tcp":                        "answer",
		"out and eager":                     "arp ip6 ping",
		"rendezvous":                        "super",
		"multicast":                         "arp nd",
		"arp or icmp and in":                "arp",
		"(arp or icmp) and out":             "arp ping",
		"not not arp":                       "arp",
		"not (ip or ip6 or arp)":            "strange",
		"not ip and not ip6 and not arp":    "strange",
		"node 3 and not (port 5201 or nd6)": "error",
		"host 10.2.0.300":                   "error",
		"host":                              "error",
		"port 70000":                        "error",
		"net 10.2.0.0":                      "error",
		"node 65535":                        "error",
		"tcp udp":                           "error",
		"tcp and":                           "error",
		"(tcp":                              "error",
		"tcp)":                              "error",
		strings.Repeat("(", 5000):           "error",
		strings.Repeat("not ", 5000):        "error",
	} {
		f, err := ParseFilter(text)
		got := "error"
		if err == nil {
			var names []string
			for _, name := range strings.Fields("answer arp cut datagram fragment ip6 nd ping strange super") {
				if f.Match(frames()[name]) {
					names = append(names, name)
				}
			}
			got = strings.Join(names, " ")
		} else if !errors.Is(err, ErrFilter) {
			t.Error(err)
		}
		if got != want {
			t.Errorf("%.60q takes %q, want %q (%v)", text, got, want, err)
		}
	}
}

// record streams the given frames.
func record(t *testing.T, o Options, frames ...*exn.CaptureFrame) []byte {
	t.Helper()
	var out bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		source := new(tap)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- Stream(ctx, &out, source, about, o) }()
		synctest.Wait()
		for i, f := range frames {
			f.Time = time.Unix(1700000000, int64(i)*1000)
			source.f(f)
		}
		synctest.Wait()
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if source.f != nil {
			t.Error("the tap is still open")
		}
	})
	return out.Bytes()
}

func read(t *testing.T, stream []byte) (lines []string, raw []byte) {
	t.Helper()
	r := NewReader(bytes.NewReader(stream))
	for {
		b, err := r.Next()
		if err == io.EOF {
			return lines, raw
		}
		if err != nil {
			t.Fatal(err)
		}
		raw = append(raw, b.Raw...)
		if b.Frame != nil {
			_, line, _ := strings.Cut(b.Frame.Line(), " ") // the time is local
			lines = append(lines, line)
		}
	}
}

func TestLines(t *testing.T) {
	f := frames()
	for name, want := range map[string]string{
		"super":    "10.2.0.7:43210 > 10.2.0.3:5201 TCP [P.], 60054 bytes; out 7->3 rendezvous RMA gso=tcp4/1448 csum=34+16",
		"datagram": "10.2.0.7:53 > 10.2.0.3:5353 UDP, 42 bytes; in 4->7 eager VELO",
		"fragment": "10.2.0.7 > 10.2.0.3 UDP, 42 bytes; in 4->7 eager VELO",
		"ping":     "10.2.0.7 > 10.2.0.3 ICMP type 8, 38 bytes; out 7->3 eager VELO",
		"arp":      "ARP request, 10.2.0.7 asks for 10.2.0.3, 42 bytes; out 7->group 63 eager VELO",
		"ip6":      "[fd00::7]:1 > [fd00::3]:2 TCP [P.], 82 bytes; out 7->3 eager VELO",
		"nd":       "fd00::7 > fd00::3 ICMPv6 type 135, 58 bytes; in 3->group 5 eager VELO",
		"strange":  "type 0x88b5, 14 bytes; in 3->7 eager VELO",
	} {
		stream := record(t, Options{}, f[name])
		lines, raw := read(t, stream)
		if len(lines) != 1 || lines[0] != want {
			t.Errorf("%s: got %q, want %q", name, lines, want)
		}
		if !bytes.Equal(raw, stream) {
			t.Errorf("%s: the raw blocks are not the stream", name)
		}
	}
	lines, _ := read(t, record(t, Options{Filter: "rendezvous", Snap: 54}, f["ping"], f["super"]))
	if len(lines) != 1 || !strings.Contains(lines[0], "TCP [P.], 60054 bytes") {
		t.Errorf("filtered and cut: %q", lines)
	}
}

// A slow reader loses frames and is told how many. The interface never waits.
func TestSlowLooker(t *testing.T) {
	r, w := io.Pipe()
	source, done := new(tap), make(chan error)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- Stream(ctx, w, source, about, Options{}) }()
	reader := NewReader(r)
	for range 2 { // the start of the stream; the rest is written once there are frames
		if _, err := reader.Next(); err != nil {
			t.Fatal(err)
		}
	}
	super := frames()["super"]
	const sent = 200
	for range sent {
		source.f(super) // nobody reads
	}
	got, dropped := 0, uint64(0)
	for got+int(dropped) < sent {
		b, err := reader.Next()
		if err != nil {
			t.Fatal(err)
		}
		if b.Frame != nil {
			got++
		}
		dropped = max(dropped, b.Dropped)
	}
	if dropped == 0 || got < queueBytes/len(super.Frame)-1 {
		t.Errorf("%d frames came, %d were dropped", got, dropped)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// Frames that crossed before the end are in the stream.
func TestStreamEnds(t *testing.T) {
	for range 20 {
		r, w := io.Pipe()
		source := new(tap)
		ctx, stop := context.WithCancel(t.Context())
		go func() { w.CloseWithError(Stream(ctx, w, source, about, Options{})) }()
		reader := NewReader(r)
		for range 2 {
			if _, err := reader.Next(); err != nil {
				t.Fatal(err)
			}
		}
		const sent = 10
		for range sent {
			source.f(frames()["ping"])
		}
		stop()
		got := 0
		for b, err := reader.Next(); err != io.EOF; b, err = reader.Next() {
			if err != nil {
				t.Fatal(err)
			}
			if b.Frame != nil {
				got++
			}
		}
		if got != sent || source.f != nil {
			t.Fatalf("%d frames of %d; still captured: %v", got, sent, source.f != nil)
		}
	}
}

func TestStreamRefuses(t *testing.T) {
	for _, o := range []Options{{Filter: "fly"}, {Snap: -1}} {
		if err := Stream(t.Context(), io.Discard, new(tap), about, o); err == nil {
			t.Errorf("%+v is accepted", o)
		}
	}
}

// Wireshark's own reader accepts the stream, and finds frames by their comments.
func TestTshark(t *testing.T) {
	root := debroot.Need(t, "tshark")
	file := filepath.Join(t.TempDir(), "frames.pcapng")
	f := frames()
	if err := os.WriteFile(file, record(t, Options{}, f["super"], f["arp"], f["datagram"], f["ip6"]), 0o600); err != nil {
		t.Fatal(err)
	}
	for filter, want := range map[string]string{
		`frame.comment contains "rendezvous"`: "1 60054 out 7->3 rendezvous RMA gso=tcp4/1448 csum=34+16 10.2.0.7 5201",
		`arp`:                                 "2 42 out 7->group 63 eager VELO",
		`udp.port == 53`:                      "3 42 in 4->7 eager VELO 10.2.0.7",
		`ipv6 and frame.interface_name == "exn0" and frame.packet_flags_direction == 2`: "4 82 out 7->3 eager VELO 2",
	} {
		cmd := root.Command(t.Context(), "tshark", "-n", "-r", file, "-Y", filter, "-T", "fields", "-E", "separator= ",
			"-e", "frame.number", "-e", "frame.len", "-e", "frame.comment", "-e", "ip.src", "-e", "tcp.dstport")
		out, err := cmd.Output()
		if err != nil {
			var failed *exec.ExitError
			if errors.As(err, &failed) {
				t.Logf("%s", failed.Stderr)
			}
			t.Fatalf("%s: %v", filter, err)
		}
		if got := strings.Join(strings.Fields(string(out)), " "); got != want {
			t.Errorf("%s: got %q, want %q", filter, got, want)
		}
	}
}

func FuzzReader(f *testing.F) {
	var seed []byte
	seed = appendStart(seed, about, 0)
	for _, c := range frames() {
		if len(c.Frame) < 1000 {
			seed = appendFrame(seed, c, "7", 0)
		}
	}
	f.Add(appendDropped(seed, 3))
	f.Fuzz(func(t *testing.T, stream []byte) {
		r := NewReader(bytes.NewReader(stream))
		for {
			b, err := r.Next()
			if err != nil {
				return
			}
			if b.Frame != nil {
				_ = b.Frame.Line()
			}
		}
	})
}

func FuzzFilter(f *testing.F) {
	f.Add("not (host 10.2.0.3 or port 53) and in", ip6(0, protoTCP, 0, 1, 4, 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, text string, frame []byte) {
		filter, err := ParseFilter(text)
		if err != nil {
			return
		}
		filter.Match(&exn.CaptureFrame{Frame: frame})
	})
}
