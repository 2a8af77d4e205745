package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/exn/netns"
)

// An end is what the halves have in common: where they live, a socket whose
// port the other half is told, and that port of the other.
type end struct {
	role   measure.Role
	site   *measure.Site
	params measure.Params
	here   netip.Addr // lead's and follow's own address
	there  netip.Addr
	ns     *netns.NS // nil: that of the process
	nagle  bool      // connections without TCP_NODELAY
	bound  int       // socket of follow, bound to a port of the kernel's choice; -1 for none
	port   uint16
}

// newEnd moves the half's thread into its namespace for the sockets to come.
func newEnd(role measure.Role, site *measure.Site, p measure.Params) (*end, error) {
	e := &end{role: role, site: site, params: p, bound: -1}
	mine, other := p.Ends[0], p.Ends[1]
	if role == measure.Follow {
		mine, other = other, mine
	}
	e.here, e.there = mine.Addr, other.Addr
	if mine.NetNS == "" {
		return e, nil
	}
	var err error
	e.ns, err = netns.Open(mine.NetNS)
	return e, err
}

// bind gives follow its socket; how is unix.SOCK_STREAM, which then listens,
// or unix.SOCK_DGRAM.
func (e *end) bind(how int) (err error) {
	if e.role != measure.Follow {
		return nil
	}
	if e.bound, err = e.socket(how); err != nil {
		return err
	}
	if e.params.Port != 0 {
		if err := unix.SetsockoptInt(e.bound, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
			return fmt.Errorf("traffic: set up a socket: %w", err)
		}
	}
	if err := unix.Bind(e.bound, address(e.here, uint16(e.params.Port))); err != nil {
		return fmt.Errorf("traffic: bind to %v port %d: %w", e.here, e.params.Port, err)
	}
	if how == unix.SOCK_STREAM {
		const backlog = 64
		if err := unix.Listen(e.bound, backlog); err != nil {
			return fmt.Errorf("traffic: listen on %v: %w", e.here, err)
		}
	}
	name, err := unix.Getsockname(e.bound)
	if err != nil {
		return fmt.Errorf("traffic: ask for the port: %w", err)
	}
	switch a := name.(type) {
	case *unix.SockaddrInet4:
		e.port = uint16(a.Port)
	case *unix.SockaddrInet6:
		e.port = uint16(a.Port)
	}
	// A sleeper in accept or recv is woken; what it gets then is an error.
	e.site.OnStop(func() { unix.Shutdown(e.bound, unix.SHUT_RDWR) })
	return nil
}

// Words tells the port.
func (e *end) Words() []uint64 { return []uint64{uint64(e.port)} }

// Meet learns it.
func (e *end) Meet(words []uint64) error {
	if len(words) != 1 {
		return fmt.Errorf("traffic: the other half says %v instead of its port", words)
	}
	if e.role == measure.Lead {
		e.port = uint16(words[0])
	}
	return nil
}

// Close closes what follow has bound.
func (e *end) Close() error {
	if e.bound >= 0 {
		unix.Close(e.bound)
	}
	if e.ns == nil {
		return nil
	}
	return e.ns.Close()
}

// socket makes a blocking socket in the half's namespace.
func (e *end) socket(how int) (fd int, err error) {
	family := unix.AF_INET
	if e.here.Is6() {
		family = unix.AF_INET6
	}
	make := func() error {
		fd, err = unix.Socket(family, how|unix.SOCK_CLOEXEC, 0)
		return err
	}
	if e.ns == nil {
		err = make()
	} else {
		err = e.ns.Do(make)
	}
	if err != nil {
		return -1, fmt.Errorf("traffic: make a socket: %w", err)
	}
	if how == unix.SOCK_STREAM {
		err = unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION, "cubic")
		if !e.nagle {
			err = errors.Join(err, unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1))
		}
	}
	// Whoever waits looks again from time to time whether it is to stop.
	patience := unix.NsecToTimeval(int64(lookAgain))
	err = errors.Join(err, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &patience),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience))
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("traffic: set up a socket: %w", err)
	}
	return fd, nil
}

// lookAgain is how long a half sleeps at most before it looks whether it is to
// stop.
const lookAgain = 100 * time.Millisecond

// giveUp is how long nothing may arrive before the path counts as broken.
const giveUp = 20 * time.Second

// connect connects lead to follow.
func (e *end) connect(how int) (int, error) {
	fd, err := e.socket(how)
	if err != nil {
		return -1, err
	}
	for {
		err = unix.Connect(fd, address(e.there, e.port))
		if err == nil || errors.Is(err, unix.EISCONN) {
			return fd, nil
		}
		if !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.EALREADY) {
			unix.Close(fd)
			return -1, fmt.Errorf("traffic: connect to %v port %d: %w", e.there, e.port, err)
		}
	}
}

// accept takes a connection of lead.
func (e *end) accept() (int, error) {
	for deadline := time.Now().Add(giveUp); ; {
		fd, _, err := unix.Accept4(e.bound, unix.SOCK_CLOEXEC)
		if err == nil {
			return fd, nil
		}
		if err := e.again(err, deadline); err != nil {
			return -1, fmt.Errorf("traffic: accept at %v: %w", e.here, err)
		}
	}
}

// again says whether a call that failed is to be made again: nil if it is.
func (e *end) again(err error, deadline time.Time) error {
	switch {
	case e.site.Stopped():
		return measure.ErrStopped
	case errors.Is(err, unix.EINTR):
		return nil
	case errors.Is(err, unix.EAGAIN) && time.Now().Before(deadline):
		return nil
	case errors.Is(err, unix.EAGAIN):
		return fmt.Errorf("nothing arrived for %v", giveUp)
	}
	return err
}

func address(a netip.Addr, port uint16) unix.Sockaddr {
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(port), Addr: a.As4()}
	}
	return &unix.SockaddrInet6{Port: int(port), Addr: a.As16()}
}

// span is when what counts of a run of n milliseconds begins and ends.
func span(p measure.Params, n int) (begin, end time.Time) {
	length, begin := time.Duration(n)*time.Millisecond, time.Now()
	if p.Limit == 0 {
		begin = begin.Add(warmUp(length))
	}
	return begin, begin.Add(length)
}

// warmUp is that of a run of the half. What has a limit counts from its beginning.
func (e *end) warmUp(d time.Duration) time.Duration {
	if e.params.Limit > 0 {
		return 0
	}
	return warmUp(d)
}

// warmUp is how long traffic runs before it counts: windows open, daemons are
// awake.
func warmUp(d time.Duration) time.Duration { return max(20*time.Millisecond, d/10) }
