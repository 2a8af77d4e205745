package gopeer_test

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/test/ds/script"
)

// A player is an end of a script (test/ds/script) in Go: it makes the calls that Go programs
// make, with package directsockets or, if withNet is set, with package net, and says
// of each what the program saw. Its calls have the names of those of ccode/player.c; one
// that it does not know it does not make.
type player struct {
	mu      sync.Mutex
	handles map[string]*socket
	threads map[int]*deed
}

// withNet is what the environment says for package net.
const withNet = "GOPEER_NET"

type stream interface {
	net.Conn
	CloseRead() error
	CloseWrite() error
	SetNoDelay(bool) error
	SetKeepAlive(bool) error
	SetLinger(int) error
}

type socket struct {
	l              net.Listener
	c              stream
	receive, send_ time.Duration // time-outs, as SO_RCVTIMEO and SO_SNDTIMEO
}

// A deed is a call of its own thread.
type deed struct {
	done chan struct{}
	log  string
}

// plays says whether a player in Go can make a step. Options of a socket that is not
// connected yet are not among what Go has.
func plays(s script.Step) bool {
	w := s.Words
	switch w[0] {
	case "blocked", "kill9", "stop", "cont", "join", "ping", "pong", "push", "pull", "write", "close", "shutdown", "connect":
		return true
	case "read":
		return len(w) == 3
	case "send", "sendto", "recv":
		return len(w) == 3 || w[3] == "nosignal" || w[3] == "waitall"
	case "set":
		return w[2] == "nodelay" || w[2] == "linger" || w[2] == "keepalive" || w[2] == "rcvtimeo" || w[2] == "sndtimeo"
	}
	return len(w) == 3 && (w[1] == "socket" || w[1] == "listen" || w[1] == "accept")
}

// play answers the conductor until it hangs up.
func play([]string) error {
	p := &player{handles: map[string]*socket{}, threads: map[int]*deed{}}
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		words := strings.Fields(orders.Text())
		number, thread, own := strings.Cut(words[0], "&")
		id, _ := strconv.ParseUint(number, 10, 32)
		n, _ := strconv.Atoi(thread)
		switch {
		case own:
			fmt.Println(p.start(n, uint32(id), words[1:]))
		case words[1] == "join":
			n, _ := strconv.Atoi(words[2])
			if d := p.threads[n]; d != nil {
				<-d.done
				fmt.Println(d.log)
				delete(p.threads, n)
			} else {
				fmt.Println("no such thread")
			}
		default:
			fmt.Println(p.perform(uint32(id), words[1:]))
		}
	}
	return nil
}

// start makes a call in a thread of the kernel that does nothing else.
func (p *player) start(n int, id uint32, words []string) string {
	d := &deed{done: make(chan struct{})}
	p.threads[n] = d
	tid := make(chan int)
	go func() {
		runtime.LockOSThread()
		tid <- unix.Gettid()
		d.log = p.perform(id, words)
		close(d.done)
	}()
	return fmt.Sprintf("started | tid=%d", <-tid)
}

// perform makes a call, and adds how long it took for the conductor.
func (p *player) perform(id uint32, words []string) string {
	began := time.Now()
	log, note := p.call(id, words)
	return fmt.Sprintf("%s | %s ms=%d", log, note, time.Since(began).Milliseconds())
}

func (p *player) call(id uint32, w []string) (log, note string) {
	arg := func(i int) int { n, _ := strconv.Atoi(w[i]); return n }
	if len(w) > 2 && w[1] == "socket" {
		p.bind(w[0], &socket{})
		return "socket", ""
	}
	if len(w) > 2 && w[1] == "listen" {
		return p.listen(w[0], w[2])
	}
	if len(w) > 2 && w[1] == "accept" {
		l := p.find(w[2])
		if l == nil || l.l == nil {
			return "EINVAL", ""
		}
		c, err := l.l.Accept()
		if err == nil {
			p.bind(w[0], &socket{c: c.(stream)})
		}
		return "accept " + said(err), ""
	}
	s := p.find(w[1])
	switch {
	case s == nil:
		return "EBADF", ""
	case w[0] == "connect":
		return p.connect(s, w[2], w[3]), ""
	case w[0] == "close":
		if s.l != nil {
			return said(s.l.Close()), ""
		}
		if s.c == nil {
			return "0", ""
		}
		return said(s.c.Close()), ""
	case s.c == nil:
		return "ENOTCONN", ""
	}
	switch w[0] {
	case "set":
		return said(s.set(w[2], arg(3))), ""
	case "shutdown":
		var err error
		if w[2] != "wr" {
			err = s.c.CloseRead()
		}
		if w[2] != "rd" {
			err = errors.Join(err, s.c.CloseWrite())
		}
		return said(err), ""
	case "write", "send", "sendto":
		n, err := s.write(pattern(id, 0, arg(2)))
		return fmt.Sprint(n, " ", said(err)), ""
	case "push":
		return s.push(id, arg(2), arg(3), len(w) == 4), ""
	case "read", "recv":
		b := make([]byte, arg(2))
		n, err := s.read(b)
		for all := len(w) > 3 && w[3] == "waitall"; all && err == nil && n < len(b); {
			var k int
			k, err = s.read(b[n:])
			n += k
		}
		return fmt.Sprintf("%d %s bytes=%016x", n, said(err), hash(hashStart, b[:n])), ""
	case "pull":
		return s.pull(arg(2), arg(3)), ""
	case "ping", "pong":
		return s.exchange(id, arg(2), arg(3), w[0] == "ping"), ""
	}
	return "unknown call", ""
}

func (p *player) bind(name string, s *socket) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handles[name] = s
}

func (p *player) find(name string) *socket {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.handles[name]
}

// loopback is where a family lives: 4, 6, or m for mapped addresses.
var loopback = map[string]string{"4": "127.0.0.1", "6": "::1", "m": "::ffff:127.0.0.1"}

func (p *player) listen(name, family string) (log, note string) {
	var lc directsockets.ListenConfig
	network, address := "tcp", net.JoinHostPort(loopback[family], "0")
	if family == "m" {
		address = "[::]:0"
	}
	var l net.Listener
	var err error
	if os.Getenv(withNet) != "" {
		var plain net.ListenConfig
		plain.SetMultipathTCP(false)
		l, err = plain.Listen(background, network, address)
	} else {
		l, err = lc.Listen(background, network, address)
	}
	if err != nil {
		return said(err), ""
	}
	p.bind(name, &socket{l: l})
	return "listen", fmt.Sprintf("port=%d", l.Addr().(*net.TCPAddr).Port)
}

func (p *player) connect(s *socket, family, port string) string {
	address := net.JoinHostPort(loopback[family], port)
	var c net.Conn
	var err error
	if os.Getenv(withNet) != "" {
		c, err = net.Dial("tcp", address)
	} else {
		c, err = directsockets.Dial("tcp", address)
	}
	if err == nil {
		s.c = c.(stream)
	}
	return said(err)
}

func (s *socket) set(option string, v int) error {
	switch option {
	case "linger":
		return s.c.SetLinger(v)
	case "keepalive":
		return s.c.SetKeepAlive(v != 0)
	case "rcvtimeo":
		s.receive = time.Duration(v) * time.Millisecond
		return nil
	case "sndtimeo":
		s.send_ = time.Duration(v) * time.Millisecond
		return nil
	}
	return s.c.SetNoDelay(v != 0)
}

func (s *socket) read(b []byte) (int, error) {
	if s.receive > 0 {
		s.c.SetReadDeadline(time.Now().Add(s.receive))
	}
	return s.c.Read(b)
}

func (s *socket) write(b []byte) (int, error) {
	if s.send_ > 0 {
		s.c.SetWriteDeadline(time.Now().Add(s.send_))
	}
	return s.c.Write(b)
}

// push writes all. How much a socket buffer takes is not told where that is not to be counted.
func (s *socket) push(id uint32, n, chunk int, counted bool) string {
	at := 0
	for at < n {
		k, err := s.write(pattern(id, at, min(chunk, n-at)))
		if at += k; err != nil {
			if !counted {
				return "then " + said(err)
			}
			return fmt.Sprintf("%d then %s", at, said(err))
		}
	}
	return fmt.Sprint(at)
}

func (s *socket) pull(n, chunk int) string {
	b, h := make([]byte, chunk), uint64(hashStart)
	for at := 0; at < n; {
		k, err := s.read(b[:min(chunk, n-at)])
		h = hash(h, b[:k])
		if at += k; err != nil {
			return fmt.Sprintf("%d bytes=%016x then %s", at, h, said(err))
		}
	}
	return fmt.Sprintf("%d bytes=%016x", n, h)
}

func (s *socket) exchange(id uint32, rounds, n int, first bool) string {
	b := pattern(id, 0, n)
	for i := range rounds {
		if first {
			if _, err := s.c.Write(b); err != nil {
				return fmt.Sprintf("round %d: %s", i, said(err))
			}
		}
		if _, err := io.ReadFull(s.c, b); err != nil {
			return fmt.Sprintf("round %d: %s", i, said(err))
		}
		if !first {
			if _, err := s.c.Write(b); err != nil {
				return fmt.Sprintf("round %d: %s", i, said(err))
			}
		}
	}
	if first {
		return fmt.Sprintf("done bytes=%016x", hash(hashStart, b))
	}
	return "done"
}

// said is an error as a script's log has it.
func said(err error) string {
	var number syscall.Errno
	switch {
	case err == nil:
		return "0"
	case errors.Is(err, io.EOF):
		return "end"
	case errors.Is(err, net.ErrClosed):
		return "closed"
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "EAGAIN"
	case errors.As(err, &number):
		return unix.ErrnoName(number)
	}
	return err.Error()
}

// pattern is bytes of a step, as in ccode/player.h.
func pattern(id uint32, at, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		x := uint64(at+i+1)*0x9e3779b97f4a7c15 + uint64(id)*0xd1342543de82ef95
		b[i] = byte(x>>56 ^ x>>29)
	}
	return b
}

const hashStart = 0xcbf29ce484222325

func hash(h uint64, b []byte) uint64 {
	for _, v := range b {
		h = (h ^ uint64(v)) * 0x100000001b3
	}
	return h
}
