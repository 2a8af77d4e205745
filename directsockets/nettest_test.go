package directsockets

import (
	"net"
	"testing"

	"golang.org/x/net/nettest"
)

// The conformance suite of golang.org/x/net, by whichever path the bytes go.
func TestNettest(t *testing.T) {
	for _, way := range []struct {
		name string
		off  bool
		play func(t testing.TB, a, b *Conn) // before the test gets the connection
		each func(a, b *Conn)               // while it plays
		dice uint32
	}{
		{name: "never upgraded", off: true},
		{name: "upgraded before", play: warm},
		{name: "upgraded in the middle"},
		{name: "back in the middle", play: warm, each: func(a, b *Conn) { a.stay(reasonTest) }},
		{name: "switching at random", play: warm, dice: 4},
	} {
		t.Run(way.name, func(t *testing.T) {
			testSwitch.Store(0)
			defer testSwitch.Store(0)
			o := Options{Fabric: fabric(t), Off: way.off}
			nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
				testSwitch.Store(0)
				a, b, err := connect(o)
				if err != nil {
					return nil, nil, nil, err
				}
				if way.play != nil {
					way.play(t, a, b)
				}
				testSwitch.Store(way.dice)
				if way.each != nil {
					go way.each(a, b)
				}
				return a, b, func() { a.Close(); b.Close() }, nil
			})
		})
	}
}
