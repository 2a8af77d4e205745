package exn

import (
	"fmt"
	"io"
	"net"
	"testing"

	"exnet/mtu"
)

// stream moves b.N chunks.
func stream(b *testing.B, in, out net.Conn) {
	chunk := make([]byte, 128<<10)
	b.SetBytes(int64(len(chunk)))
	done := make(chan error)
	go func() {
		_, err := io.CopyN(nowhere{make([]byte, 256<<10)}, in, int64(b.N)*int64(len(chunk)))
		done <- err
	}()
	b.ResetTimer()
	for range b.N {
		if _, err := out.Write(chunk); err != nil {
			b.Fatal(err)
		}
	}
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}

// nowhere reads into a buffer of its own, as a program does, and drops the bytes.
type nowhere struct{ buf []byte }

func (n nowhere) Write(b []byte) (int, error) { return len(b), nil }

func (n nowhere) ReadFrom(r io.Reader) (sum int64, err error) {
	for err == nil {
		var k int
		k, err = r.Read(n.buf)
		sum += int64(k)
	}
	if err == io.EOF {
		err = nil
	}
	return sum, err
}

// One TCP stream between two nodes in shared memory; and one byte back and forth.
func BenchmarkNodeStream(b *testing.B) {
	for _, m := range []int{65536, 1500} {
		b.Run(fmt.Sprint("MTU", m), func(b *testing.B) {
			from, to := pair(b, backends["shm"](b), NodeConfig{MTU: mtu.Link(m)})
			client, server := connect(b, from, to, "tcp", "10.0.0.2")
			defer client.Close()
			defer server.Close()
			stream(b, server, client)
		})
	}
}

func BenchmarkNodePingPong(b *testing.B) {
	from, to := pair(b, backends["shm"](b), NodeConfig{})
	client, server := connect(b, from, to, "tcp", "10.0.0.2")
	defer client.Close()
	go func() { _, _ = io.Copy(server, server); server.Close() }()
	buf := make([]byte, 64)
	for b.Loop() {
		_, _ = client.Write(buf)
		if _, err := io.ReadFull(client, buf); err != nil {
			b.Fatal(err)
		}
	}
}

// One stream between a node and a kernel behind exn0, all in this process.
func BenchmarkNodeAndKernel(b *testing.B) {
	for name, up := range map[string]bool{"ToKernel": true, "FromKernel": false} {
		b.Run(name, func(b *testing.B) {
			attach := backends["shm"](b)
			ns := kernel(b, attach(2), 0, []string{"10.0.0.2/24"})
			node := join(b, attach, 1, NodeConfig{})
			var l net.Listener
			var err error
			ns.Do(b, func() { l, err = net.Listen("tcp", "10.0.0.2:0") })
			if err != nil {
				b.Fatal(err)
			}
			defer l.Close()
			out, err := node.Dial("tcp", l.Addr().String())
			if err != nil {
				b.Fatal(err)
			}
			defer out.Close()
			in, err := l.Accept()
			if err != nil {
				b.Fatal(err)
			}
			defer in.Close()
			if !up {
				in, out = out, in
			}
			stream(b, in, out)
		})
	}
}
