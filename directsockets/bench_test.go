package directsockets

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Both ends of these connections are in one process; dsbench compares processes.

func each(b *testing.B, f func(b *testing.B, client, server net.Conn)) {
	b.Run("net", func(b *testing.B) {
		a, s, err := connect(Options{Off: true})
		if err != nil {
			b.Fatal(err)
		}
		defer a.Close()
		defer s.Close()
		f(b, a.tcp, s.tcp)
	})
	b.Run("lane", func(b *testing.B) {
		a, s := pipe(b, Options{Fabric: fabric(b)})
		warm(b, a, s)
		f(b, a, s)
	})
}

func BenchmarkRoundTrip(b *testing.B) {
	each(b, func(b *testing.B, client, server net.Conn) {
		var wait sync.WaitGroup
		wait.Go(func() {
			x := make([]byte, 64)
			for range b.N {
				if _, err := io.ReadFull(server, x); err != nil {
					b.Error(err)
					return
				}
				server.Write(x)
			}
		})
		x := make([]byte, 64)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			client.Write(x)
			if _, err := io.ReadFull(client, x); err != nil {
				b.Fatal(err)
			}
		}
		wait.Wait()
	})
}

func BenchmarkStream(b *testing.B) {
	const size = 128 << 10
	each(b, func(b *testing.B, client, server net.Conn) {
		var wait sync.WaitGroup
		wait.Go(func() {
			x := make([]byte, size)
			for range b.N {
				if _, err := io.ReadFull(server, x); err != nil {
					b.Error(err)
					return
				}
			}
		})
		x := make([]byte, size)
		b.SetBytes(size)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if _, err := client.Write(x); err != nil {
				b.Fatal(err)
			}
		}
		wait.Wait()
	})
}
