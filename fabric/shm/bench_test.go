package shm

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// Quick looks at the hot paths between two threads. dsbench fabric measures
// them between two processes, beside their references.

func attachPair(tb testing.TB) (a, b *Node) {
	tb.Helper()
	dir := tb.TempDir() + "/fabric"
	for _, n := range []**Node{&a, &b} {
		var err error
		if *n, err = Attach(Config{Dir: dir, Node: fabric.NodeAny}); err != nil {
			tb.Fatal(err)
		}
		node := *n
		tb.Cleanup(func() { node.Close() })
	}
	return a, b
}

func pin(cpu int) {
	runtime.LockOSThread()
	var s unix.CPUSet
	s.Set(cpu)
	unix.SchedSetaffinity(0, &s)
}

func BenchmarkVELORate(b *testing.B) {
	x, y := attachPair(b)
	from, err := x.OpenVELO(0, fabric.PortInterrupts{})
	if err != nil {
		b.Fatal(err)
	}
	to, err := y.OpenVELO(0, fabric.PortInterrupts{})
	if err != nil {
		b.Fatal(err)
	}
	n := b.N
	done := make(chan bool)
	go func() {
		pin(1)
		m := make([]fabric.Message, 64)
		for got := 0; got < n; {
			got += to.Poll(m)
		}
		close(done)
	}()
	pin(0)
	payload := make([]byte, 8)
	d := fabric.VELODescriptor{To: to.Address()}
	b.ResetTimer()
	for range n {
		for from.Send(d, payload) != nil {
		}
	}
	<-done
}

func BenchmarkVELOHalfRoundTrip(b *testing.B) {
	x, y := attachPair(b)
	px, _ := x.OpenVELO(0, fabric.PortInterrupts{})
	py, _ := y.OpenVELO(0, fabric.PortInterrupts{})
	n := b.N
	go func() {
		pin(1)
		echo(py, px.Address(), n, false)
	}()
	pin(0)
	b.ResetTimer()
	echo(px, py.Address(), n, true)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/2, "ns/half-rt")
}

func echo(p fabric.VELO, to fabric.Address, n int, first bool) {
	payload := make([]byte, 8)
	m := make([]fabric.Message, 1)
	for range n {
		if first {
			p.Send(fabric.VELODescriptor{To: to}, payload)
		}
		for p.Poll(m) == 0 {
		}
		if !first {
			p.Send(fabric.VELODescriptor{To: to}, payload)
		}
	}
}

func BenchmarkPut4K(b *testing.B) { benchmarkPut(b, 4096) }

func BenchmarkPut64K(b *testing.B) { benchmarkPut(b, 65536) }

func benchmarkPut(b *testing.B, size int) {
	x, y := attachPair(b)
	px, _ := x.OpenRMA(0, fabric.PortInterrupts{})
	py, _ := y.OpenRMA(0, fabric.PortInterrupts{})
	wx := openWindow(b, x, px, size, 0)
	wy := openWindow(b, y, py, size, fabric.RemoteWrite)
	d := &fabric.RMADescriptor{Command: fabric.Put, To: py.Address(), Length: size, Local: wx.NLA(), Remote: wy.NLA()}
	for px.Post(d) != nil {
		runtime.Gosched()
	}
	b.SetBytes(int64(size))
	b.ResetTimer()
	for range b.N {
		px.Post(d)
	}
}
