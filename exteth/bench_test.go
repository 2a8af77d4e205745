package exteth

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/adapters/gonet"

	"exnet/fabric"
	"exnet/fabric/shm"
)

// shmPair attaches two nodes to a fabric in shared memory.
func shmPair(b testing.TB) (nodes [2]fabric.Node) {
	dir := b.TempDir() + "/fabric"
	for i := range nodes {
		n, err := shm.Attach(shm.Config{Dir: dir, Node: fabric.NodeID(i + 1)})
		if err != nil {
			b.Fatal(err)
		}
		nodes[i] = n
		b.Cleanup(func() { _ = n.Close() })
	}
	return nodes
}

// BenchmarkEngine sends frames from one engine to another on one goroutine. It measures the cost of
// the protocol without copies, sleeping and waking.
func BenchmarkEngine(b *testing.B) {
	for _, n := range []int{60, 480, 1514, 65550} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			nodes := shmPair(b)
			got := 0
			var e [2]*Engine
			for i, node := range nodes {
				var err error
				if e[i], err = New(node, Config{Receive: func(*Frame) error { got++; return nil }}); err != nil {
					b.Fatal(err)
				}
				defer e[i].Close()
			}
			start := time.Now()
			poll := func() time.Duration {
				now := time.Since(start)
				for _, e := range e {
					e.PollVELO(now, 64)
					e.PollRMA(now, 64)
					e.Advance(now)
				}
				return now
			}
			for p := (Peer{}); !p.Met; p, _ = e[0].Peer(2) {
				e[0].NodeEvent(fabric.Event{Node: 2, Joined: true}, poll())
			}
			f := ethernet(node(2), 1, n, 1)
			b.SetBytes(int64(n))
			b.ReportAllocs()
			b.ResetTimer()
			now := poll()
			for i := range b.N {
				for e[0].Blocked() {
					now = poll()
				}
				buf := e[0].Borrow()
				copy(buf.Bytes[50:], f[:14])
				if err := e[0].Send(buf, 50, n, VNet{}, now); err != nil {
					b.Fatal(err)
				}
				if i%8 == 7 {
					now = poll()
				}
			}
			poll()
			b.StopTimer()
			if got < b.N-8 {
				b.Errorf("%d of %d frames arrived", got, b.N)
			}
		})
	}
}

// BenchmarkEndpointTCP measures one TCP stream from netstack to netstack.
func BenchmarkEndpointTCP(b *testing.B) {
	nodes := shmPair(b)
	var hosts [2]*host
	for i, n := range nodes {
		hosts[i] = newHost(b, n, EndpointConfig{}, true)
	}
	defer stop(hosts[:]...)
	to, proto := hosts[1].address(false)
	l, err := gonet.ListenTCP(hosts[1].Stack, to, proto)
	if err != nil {
		b.Fatal(err)
	}
	defer l.Close()
	done := make(chan int64)
	go func() {
		c, err := l.Accept()
		if err != nil {
			done <- 0
			return
		}
		defer c.Close()
		n, _ := io.CopyBuffer(struct{ io.Writer }{io.Discard}, c, make([]byte, 256<<10))
		done <- n
	}()
	c, err := gonet.DialContextTCP(context.Background(), hosts[0].Stack, to, proto)
	if err != nil {
		b.Fatal(err)
	}
	buf := make([]byte, 256<<10)
	b.SetBytes(int64(len(buf)))
	b.ResetTimer()
	for range b.N {
		if _, err := c.Write(buf); err != nil {
			b.Fatal(err)
		}
	}
	_ = c.CloseWrite()
	if n := <-done; n != int64(b.N)*int64(len(buf)) {
		b.Errorf("%d bytes arrived", n)
	}
	b.StopTimer()
	_ = c.Close()
}
