package gopeer_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
)

// role is what the environment of this binary says when it is not to test but to
// be an end of the oracle.
const role = "GOPEER_ROLE"

// lends says that its writes are out of buffers that its peer can read.
var lends = os.Getenv("GOPEER_LENDS") != ""

func TestMain(m *testing.M) {
	play := map[string]func([]string) error{"oracle": oracle, "victim": victim, "crowd": crowd, "play": play}[os.Getenv(role)]
	if play != nil {
		if err := play(os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, "go end:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func mix(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15 // splitmix64
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// A flow is a direction of a connection; side 0 is the client. As in oracle.c.
type flow struct{ seed, key uint64 }

func flowOf(seed uint64, conn, side int) flow {
	return flow{seed, mix(seed*1000 + uint64(conn)*2 + uint64(side))}
}

func (f flow) total() uint64 {
	if f.key%8 == 0 {
		return f.key % 5000
	}
	return f.key % 8000000
}

// fill sets b to the bytes from an offset on, a word at a time.
func (f flow) fill(b []byte, at uint64) {
	var word [8]byte
	for len(b) > 0 {
		binary.LittleEndian.PutUint64(word[:], mix(f.key^at>>3))
		n := copy(b, word[at&7:])
		b = b[n:]
		at += uint64(n)
	}
}

// whence says where bytes belong that are wrong at an offset, here or in another flow of
// the seed, which tells what went wrong.
func whence(seed uint64, b []byte) string {
	const enough = 16
	if len(b) < enough {
		return fmt.Sprintf("%x", b)
	}
	for conn := range 4 {
		for side := range 2 {
			f := flowOf(seed, conn, side)
			all := make([]byte, f.total())
			f.fill(all, 0)
			if i := bytes.Index(all, b[:enough]); i >= 0 {
				return fmt.Sprintf("it is byte %d of connection %d of side %d", i, conn, side)
			}
		}
	}
	return fmt.Sprintf("%x is nowhere", b[:enough])
}

const most = 70000

func size(r *rand.Rand) int { return 1 + r.IntN([]int{16, 200, 600, 5000, 70000, 500}[r.IntN(6)]) }

// oracle is an end: client|server PORT SEED CONNS PROGRESS.
func oracle(args []string) error {
	if len(args) < 5 {
		return errors.New("arguments")
	}
	port, _ := strconv.Atoi(args[1])
	seed, _ := strconv.ParseUint(args[2], 10, 64)
	conns, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	f, err := os.OpenFile(args[4], os.O_RDWR, 0)
	if err != nil {
		return err
	}
	b, err := unix.Mmap(int(f.Fd()), 0, progressSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	progress := unsafe.Slice((*atomic.Uint64)(unsafe.Pointer(&b[0])), progressSize/8)
	address := os.Getenv("ORACLE_ADDRESS")
	if address == "" {
		address = "127.0.0.1"
	}
	address = net.JoinHostPort(address, strconv.Itoa(port))
	side := 0
	var l net.Listener
	if args[0] == "server" {
		side = 1
		if l, err = directsockets.Listen("tcp4", address); err != nil {
			return err
		}
		fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	var wrong error
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		wrong = errors.Join(wrong, err)
	}
	for i := range conns {
		var c net.Conn
		if l != nil {
			c, err = l.Accept()
		} else {
			c, err = directsockets.Dial("tcp4", address)
		}
		if err != nil {
			return err
		}
		number := []byte{byte(i)}
		if l != nil {
			_, err = io.ReadFull(c, number)
		} else {
			_, err = c.Write(number)
		}
		if err != nil {
			return err
		}
		n := int(number[0])
		all.Go(func() {
			if err := greet(c, seed, side); err != nil {
				// The other end has died: reading tells how.
				fmt.Println("greeting:", err)
			}
			var both sync.WaitGroup
			var told bool
			both.Go(func() {
				var err error
				if told, err = write(c, flowOf(seed, n, side), &progress[n]); err != nil {
					failed(fmt.Errorf("connection %d: %w", n, err))
				}
			})
			f := flowOf(seed, n, 1-side)
			at, how, err := read(c, f)
			if err != nil {
				failed(fmt.Errorf("connection %d: %w", n, err))
			}
			both.Wait()
			if told {
				how = "reset" // TCP tells it to one of two
			}
			fmt.Printf("%d %d of %d %s\n", n, at, f.total(), how)
			s := c.(*directsockets.Conn).Status()
			fmt.Printf("path %d tcp %d lane %d zcopy %d %v %v\n", n, s.TCP.Read+s.TCP.Written,
				s.VELO.Read+s.VELO.Written+s.RMA.Read+s.RMA.Written+s.ZCopy.Sum(), s.ZCopy.Sum(), s.State, s.Reason)
			c.Close()
		})
	}
	all.Wait()
	return wrong
}

// greet is ping-pong until the lanes are there: a Go end that has them says 1. Every
// fourth seed goes without, and gets them in the middle of the streams.
func greet(c net.Conn, seed uint64, side int) error {
	if seed%4 == 0 {
		return nil
	}
	b := make([]byte, 1)
	over := false
	say := func() error {
		s := c.(*directsockets.Conn).Status()
		b[0] = 0
		if s.ReadsLane && s.WritesLane {
			b[0] = 1
		}
		over = over || b[0] == 1
		_, err := c.Write(b)
		return err
	}
	hear := func() error {
		_, err := io.ReadFull(c, b)
		over = over || b[0] == 1
		return err
	}
	first, second := say, hear
	if side == 1 {
		first, second = hear, say
	}
	for range greeting {
		if err := first(); err != nil {
			return err
		}
		if err := second(); err != nil {
			return err
		}
		if over {
			break
		}
	}
	return nil
}

const greeting = 20000 // rounds at most

// write says whether it was told of a reset.
func write(c net.Conn, f flow, progress *atomic.Uint64) (told bool, err error) {
	r := rand.New(rand.NewPCG(f.key, 1))
	b := make([]byte, most)
	lanes := c.(*directsockets.Conn)
	var lent *directsockets.Buffer
	defer func() {
		if lent != nil {
			lent.Release()
		}
	}()
	for at := uint64(0); at < f.total(); {
		if lends && r.IntN(8) == 0 {
			if lent != nil {
				lent.Release()
			}
			lent = lanes.Buffer(most)
			b = lent.Bytes()
		}
		part := b[:min(uint64(size(r)), f.total()-at)]
		f.fill(part, at)
		n, err := c.Write(part)
		at += uint64(n)
		progress.Store(at)
		if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	err = c.(*directsockets.Conn).CloseWrite()
	if errors.Is(err, syscall.ENOTCONN) {
		return true, nil
	}
	return false, err
}

// read reads all, and says how it ended.
func read(c net.Conn, f flow) (at uint64, how string, err error) {
	r := rand.New(rand.NewPCG(f.key, 2))
	b, want := make([]byte, most), make([]byte, most)
	for {
		n, err := c.Read(b[:size(r)])
		f.fill(want[:n], at)
		for i := 0; i < n && !bytes.Equal(b[:n], want[:n]); i++ {
			if b[i] != want[i] {
				return at, "", fmt.Errorf("byte %d of %d is %d instead of %d: %s; read %d bytes from %d on", at+uint64(i), f.total(), b[i], want[i], whence(f.seed, b[i:n]), n, at)
			}
		}
		at += uint64(n)
		switch {
		case at > f.total():
			return at, "", fmt.Errorf("%d bytes instead of %d", at, f.total())
		case err == io.EOF:
			return at, "end", nil
		case errors.Is(err, syscall.ECONNRESET):
			return at, "reset", nil
		case err != nil:
			return at, "", err
		}
	}
}
