package gopeer_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/directsockets"
	"exnet/test/ds"
)

// echo is a server that sends back what it gets in messages of a size, or throws
// it away: echo|sink SIZE.
func echo(args []string) error {
	var size int
	fmt.Sscan(args[1], &size)
	l, err := directsockets.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
	for {
		c, err := l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			b := make([]byte, size)
			for {
				if _, err := io.ReadFull(c, b); err != nil {
					return
				}
				if args[0] == "echo" {
					c.Write(b)
				}
			}
		}()
	}
}

// serve starts such a server in a process of its own and dials it n times. With
// lanes, all connections have one when it returns.
func serve(b *testing.B, lanes bool, what string, size, n int) (all []net.Conn) {
	env := append(os.Environ(), "EXN_FABRIC="+fabric, role+"="+what)
	if !lanes {
		env = append(env, "EXN_DS=off")
	}
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command(self, what, fmt.Sprint(size))
	cmd.Env = env
	cmd.SysProcAttr = dieWithUs()
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	port := strings.TrimSpace(strings.TrimPrefix(line, "port "))
	d := directsockets.Dialer{Lanes: directsockets.Options{Fabric: fabric, Off: !lanes}}
	for range n {
		c, err := d.Dial("tcp4", "127.0.0.1:"+port)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { c.Close() })
		all = append(all, c)
	}
	buffer := make([]byte, size)
	for end := time.Now().Add(30 * time.Second); lanes; {
		missing := 0
		for _, c := range all {
			s := c.(*directsockets.Conn).Status()
			if s.WritesLane && (s.ReadsLane || what == "sink") {
				continue
			}
			missing++
			c.Write(buffer)
			if what == "echo" {
				io.ReadFull(c, buffer)
			}
		}
		if missing == 0 {
			break
		}
		if time.Now().After(end) {
			b.Fatalf("%d connections have no lane", missing)
		}
	}
	return all
}

var fabric string // of the benchmarks

func both(b *testing.B, f func(b *testing.B, lanes bool)) {
	fabric = ds.Fabric(b)
	b.Run("net", func(b *testing.B) { f(b, false) })
	b.Run("lane", func(b *testing.B) { f(b, true) })
}

// A round trip of 64 B, both polling; with EXN_DS_SPIN_US=0 both asleep.
func BenchmarkRoundTrip(b *testing.B) {
	both(b, func(b *testing.B, lanes bool) {
		c := serve(b, lanes, "echo", 64, 1)[0]
		x := make([]byte, 64)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			c.Write(x)
			if _, err := io.ReadFull(c, x); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/2, "ns/half")
	})
}

// One stream of writes of 128 KiB.
func BenchmarkStream(b *testing.B) {
	const size = 128 << 10
	both(b, func(b *testing.B, lanes bool) {
		c := serve(b, lanes, "sink", size, 1)[0]
		x := make([]byte, size)
		b.SetBytes(size)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if _, err := c.Write(x); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// Requests of 1 KiB over 1,000 connections that are all in use: more than the 512
// that may have lanes by default, between two processes of which one connects.
func BenchmarkThousand(b *testing.B) {
	const size, conns = 1 << 10, 1000
	both(b, func(b *testing.B, lanes bool) {
		if lanes && os.Getenv("EXN_DS_LANES") == "" {
			b.Skip("1,000 lanes must be allowed: EXN_DS_LANES=4096 EXN_DS_MEMORY=4000000000")
		}
		all := serve(b, lanes, "echo", size, conns)
		b.ResetTimer()
		var wait sync.WaitGroup
		for _, c := range all {
			wait.Go(func() {
				x := make([]byte, size)
				for range b.N/conns + 1 {
					c.Write(x)
					if _, err := io.ReadFull(c, x); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		wait.Wait()
	})
}
