package traffic

import (
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"exnet/cmd/dsbench/measure"
)

// joinedBy is the connection of a half over EXT-DS that a plain client has made.
func joinedBy(t *testing.T, l *lanes) (client net.Conn) {
	t.Helper()
	client, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(l.Words()[0]))))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close() })
	return client
}

func followParams(t *testing.T, size int) measure.Params {
	t.Helper()
	here := measure.NetEnd{Addr: netip.MustParseAddr("127.0.0.1")}
	return measure.Params{Size: size, Streams: 1, Ends: [2]measure.NetEnd{here, here}, Dir: t.TempDir()}
}

// Halves over EXT-DS notice bytes that are wrong, lost or doubled, as those over TCP do.
func TestLanesCheck(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func([]byte) []byte
		want  string
	}{
		"good":    {func(b []byte) []byte { return b }, ""},
		"wrong":   {func(b []byte) []byte { b[2500]++; return b }, "wrong data"},
		"lost":    {func(b []byte) []byte { return append(b[:100:100], b[101:]...) }, "wrong data"},
		"doubled": {func(b []byte) []byte { return append(b[:100:100], b[99:]...) }, "wrong data"},
	} {
		p := followParams(t, block)
		p.Verify = true
		half, err := newLaneStream(measure.Follow, &measure.Site{}, p)
		if err != nil {
			t.Fatal(err)
		}
		s := half.(*laneStream)
		client := joinedBy(t, s.lanes)
		conn, err := s.connection(false)
		if err != nil {
			t.Fatal(err)
		}
		client.Write(c.spoil(append([]byte(nil), s.bytes[:5000]...)))
		client.(*net.TCPConn).CloseWrite()
		err = s.receive(conn, new(atomic.Int64))
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		s.end(conn)
		s.Close()
	}
}

// An answer that is not what was sent, is cut short, or does not come fails the run.
func TestLanesCheckAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		answer func(b []byte) []byte
		want   string
	}{
		"good":  {func(b []byte) []byte { return b }, ""},
		"wrong": {func(b []byte) []byte { b[40]++; return b }, "wrong data"},
		"short": {func(b []byte) []byte { return b[:63] }, "unexpected EOF"},
		"none":  {func([]byte) []byte { return nil }, "had no answer"},
	} {
		half, err := newLanePingPong(measure.Follow, &measure.Site{}, followParams(t, 64))
		if err != nil {
			t.Fatal(err)
		}
		p := half.(*lanePingPong)
		client := joinedBy(t, p.lanes)
		conn, err := p.connection(false)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			b := make([]byte, 64)
			io.ReadFull(client, b) // what it gets instead shows
			client.Write(c.answer(b))
			client.Close()
		}()
		err = p.exchange(conn, 7, p.sent, p.buf)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
		p.end(conn)
		p.Close()
	}
}

// What asks for something impossible is refused, and leaves no listener behind.
func TestLanesRefuse(t *testing.T) {
	for name, make := range map[string]measure.Contender{"pingpong": newLanePingPong, "connect": newLaneConnect} {
		if _, err := make(measure.Follow, &measure.Site{}, followParams(t, 0)); err == nil {
			t.Errorf("%s: messages of nothing", name)
		}
	}
	p := followParams(t, 64)
	p.Ends[1].NetNS = "/proc/self/ns/net"
	if _, err := newLaneStream(measure.Follow, &measure.Site{}, p); err == nil {
		t.Error("a namespace")
	}
	half, err := newLaneStream(measure.Lead, &measure.Site{}, followParams(t, 64))
	if err != nil || half.Meet([]uint64{1, 2}) == nil || half.Meet([]uint64{70000}) == nil {
		t.Errorf("nonsense instead of a port is taken: %v", err)
	}
}
