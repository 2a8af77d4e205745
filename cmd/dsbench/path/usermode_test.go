package path

import (
	"io"
	"net"
	"testing"

	"exnet/test/debroot"
)

// From the namespace, the programs without privileges carry a stream to the host's loopback unchanged,
// and leave nothing.
func TestUsermodeCarriesData(t *testing.T) {
	for _, u := range []Usermode{Slirp4netns, Pasta} {
		t.Run(u.Name, func(t *testing.T) {
			need(t, func() (*Path, error) { return Veth(1500) }) // to skip
			debroot.Need(t, u.Package)
			p, err := u.Open(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			const amount = 1 << 20
			ln, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer ln.Close()
			go func() {
				conn, err := ln.Accept()
				if err != nil {
					return // the reader sees no connection
				}
				conn.Write(bytesOf(amount)) // the reader sees what arrived
				conn.Close()
			}()
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			var got []byte
			err = p.ns[0].Do(func() error {
				conn, err := net.Dial("tcp", net.JoinHostPort(p.Ends[1].Addr.String(), port))
				if err != nil {
					return err
				}
				defer conn.Close()
				got, err = io.ReadAll(conn)
				return err
			})
			if err != nil || string(got) != string(bytesOf(amount)) {
				t.Errorf("%d of %d bytes arrived, %v", len(got), amount, err)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			for _, d := range p.programs {
				<-d.ended
			}
		})
	}
}
