package exn

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// A Flow is a TCP connection over which one node sends endless random bytes to another. Every byte
// is checked on arrival.
type Flow struct {
	from, to *Node
	out, in  net.Conn
	received atomic.Int64
	pause    atomic.Int64 // the longest since the last call of Pause, in ns
	stop     atomic.Bool
	done     chan error // gets two values: the sender's and the receiver's
	sent     int64      // valid after Stop
}

// Flow starts a flow to an address of another node.
func (n *Node) Flow(to *Node, addr netip.Addr) *Flow {
	n.Helper()
	f := &Flow{from: n, to: to, done: make(chan error, 2)}
	f.out, f.in = n.Connect(to, addr)
	n.Cleanup(func() { f.out.Close(); f.in.Close() })
	go func() { f.done <- f.send() }()
	go func() { f.done <- f.receive() }()
	return f
}

// Connect makes a TCP connection to an address of another node and returns
// both ends.
func (n *Node) Connect(to *Node, addr netip.Addr) (out, in net.Conn) {
	n.Helper()
	var ln net.Listener
	var err error
	to.NS.Do(n, func() { ln, err = net.Listen("tcp", net.JoinHostPort(addr.String(), "0")) })
	if err != nil {
		n.Fatalf("%v: %v", to, err)
	}
	defer ln.Close()
	n.NS.Do(n, func() { out, err = net.DialTimeout("tcp", ln.Addr().String(), patience) })
	if err != nil {
		n.Fatalf("%v: %v", n, err)
	}
	if in, err = ln.Accept(); err != nil {
		out.Close()
		n.Fatalf("%v: %v", to, err)
	}
	return out, in
}

// pieceSize is how many bytes a flow writes and reads at a time.
const pieceSize = 64 << 10

// source returns the generator of a flow's bytes.
func source() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{'f', 'l', 'o', 'w'}) }

func (f *Flow) send() error {
	piece, from := make([]byte, pieceSize), source()
	for !f.stop.Load() {
		from.Read(piece) // never fails
		n, err := f.out.Write(piece)
		f.sent += int64(n)
		if err != nil {
			return err
		}
	}
	return f.out.(*net.TCPConn).CloseWrite()
}

var errWrongData = errors.New("wrong data arrived")

func (f *Flow) receive() error {
	got, want, from := make([]byte, pieceSize), make([]byte, pieceSize), source()
	for last := time.Now(); ; {
		n, err := io.ReadFull(f.in, got)
		now := time.Now()
		for pause, longest := int64(now.Sub(last)), f.pause.Load(); pause > longest; longest = f.pause.Load() {
			f.pause.CompareAndSwap(longest, pause)
		}
		last = now
		from.Read(want) // never fails
		if string(got[:n]) != string(want[:n]) {
			return errWrongData
		}
		f.received.Add(int64(n))
		switch {
		case err == io.EOF || err == io.ErrUnexpectedEOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// Received returns how many correct bytes have arrived.
func (f *Flow) Received() int64 { return f.received.Load() }

// Pause returns the longest time in which nothing arrived, among those that ended since the last
// call.
func (f *Flow) Pause() time.Duration { return time.Duration(f.pause.Swap(0)) }

// Await waits until that many more bytes have arrived, and returns how long that took.
func (f *Flow) Await(more int64) time.Duration {
	f.from.Helper()
	begin := time.Now()
	for want := f.Received() + more; f.Received() < want; time.Sleep(time.Millisecond) {
		select {
		case err := <-f.done:
			f.from.Fatalf("the flow from %v to %v ended: %v", f.from, f.to, err)
		default:
		}
		if time.Since(begin) > patience {
			f.from.Fatalf("the flow from %v to %v stands still after %d bytes", f.from, f.to, f.Received())
		}
	}
	return time.Since(begin)
}

// Stop ends the flow. Everything that was sent must have arrived.
func (f *Flow) Stop() {
	f.from.Helper()
	f.stop.Store(true)
	late := time.After(patience)
	for range 2 {
		select {
		case err := <-f.done:
			if err != nil {
				f.from.Errorf("the flow from %v to %v after %d bytes: %v", f.from, f.to, f.Received(), err)
			}
		case <-late:
			f.from.Fatalf("the flow from %v to %v does not end after %d bytes", f.from, f.to, f.Received())
		}
	}
	if got := f.Received(); got != f.sent {
		f.from.Errorf("the flow from %v to %v: %d of %d bytes arrived", f.from, f.to, got, f.sent)
	}
	f.out.Close()
	f.in.Close()
}

// Datagrams is a pair of UDP sockets, for sending one way.
type Datagrams struct {
	Out, In *net.UDPConn
}

// Datagrams makes sockets that send from the node to an address of another, at a free port.
func (n *Node) Datagrams(to *Node, addr netip.Addr) *Datagrams {
	n.Helper()
	d := &Datagrams{}
	var err error
	to.NS.Do(n, func() { d.In, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, 0))) })
	if err != nil {
		n.Fatalf("%v: %v", to, err)
	}
	n.Cleanup(func() { d.In.Close() })
	n.NS.Do(n, func() { d.Out, err = net.DialUDP("udp", nil, d.In.LocalAddr().(*net.UDPAddr)) })
	if err != nil {
		n.Fatalf("%v: %v", n, err)
	}
	n.Cleanup(func() { d.Out.Close() })
	return d
}

// Arrives sends a datagram of a size until it arrives, and checks it. Datagrams may be lost, and
// they are refused until the sender has learnt the MTU of the path, but not for ever.
func (d *Datagrams) Arrives(n *Node, size int) {
	n.Helper()
	sent := make([]byte, size)
	rand.NewChaCha8([32]byte{byte(size), byte(size >> 8)}).Read(sent) // never fails
	got := make([]byte, size+1)
	for begin := time.Now(); ; {
		if _, err := d.Out.Write(sent); err != nil && !errors.Is(err, unix.EMSGSIZE) {
			n.Fatalf("%v: a datagram of %s bytes: %v", n, strconv.Itoa(size), err)
		}
		const again = 200 * time.Millisecond
		d.In.SetReadDeadline(time.Now().Add(again))
		k, err := d.In.Read(got)
		if err == nil && string(got[:k]) == string(sent) {
			return
		}
		if err == nil && k == size {
			n.Fatalf("%v: a datagram of %d bytes arrived with other contents", n, size)
		}
		if time.Since(begin) > patience {
			n.Fatalf("%v: no datagram of %d bytes arrives: %v", n, size, err)
		}
	}
}
