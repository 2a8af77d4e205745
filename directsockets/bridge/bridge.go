// Package bridge lets direct sockets find each other on the kernel's bridges, such as
// Docker's, and where the host routes to its containers, as Calico's hosts do.
//
//	r, err := bridge.Open("/run/exn-group", []string{"docker0"}, log) // none: all there are
//	err = r.Run(ctx, func() { … })                                    // until ctx ends
//
// Containers are in network namespaces of their own, and the library takes
// no lane to another namespace unless it is told, by somebody whom it trusts, which
// address lies in which ([home]). Of exn0's addresses its daemon says so. This package
// says it of those that a bridge or a route of this namespace leads to, and of the
// addresses that they see of this namespace itself.
//
// # Who is there
//
// One end of a veth pair names the other: its index, and the number
// that this namespace has given to that of the other end (IFLA_LINK, IFLA_LINK_NETNSID).
// The kernel writes that, so nobody gets on the list whom root has not joined to this
// namespace. Of the addresses at the other end those count that packets from here reach
// there:
//
//	the veth is         addresses at its other end        our own
//	on a bridge         in a subnet of the bridge's own   the bridge's
//	on none             that the kernel sends to through  the veth's, and for a route to one
//	                    it, without a gateway             address what the kernel takes as source
//
// So who may configure the inside of a container can take no address but from another on
// the same bridge, or what is routed to it. A veth that the default route goes through
// leads to somebody above us, as in a container, and is left out. The namespace itself is
// looked for among those of all processes, and among those that are mounted somewhere, as
// ip-netns(8) and podman do.
//
// An address that two namespaces claim is neither's: one of them lies.
//
// # Translated addresses
//
// Where something translates an address on the way, as for a port published on the host or the address of a service,
// the two ends have different names for their connection. Their offers, in the fabric directory, are questions
// about it: a packet of it is followed through the tables of connections (conntrack) of its own network
// namespace, of this one, and of the one to which its destination belongs then, to the socket that takes it. Both
// ends are told, for as long as an offer is believed.
//
// # When it looks
//
// The kernel tells of each change of a link, an address or a route, here and in all namespaces
// that have a number here (NETLINK_LISTEN_ALL_NSID). What it tells is not looked at, as
// in package device: all is looked at again, for a small part of the time at most. A
// namespace that a port leads to and that is nowhere to be found, since nobody is in it yet and its mount is hidden from us, is
// looked for again from time to time; otherwise there is nothing to do in between.
//
// # What it is not
//
// It sees no virtual machines, no containers on macvlan or ipvlan, and none to which
// programs in the kernel (eBPF) lead instead of routes in the main table.
package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/exn/netns"
)

// A Registrar registers who is behind some interfaces of the network namespace that it
// was opened in.
type Registrar struct {
	fabricDir  string
	names      []string // of bridges and veths; none: all
	log        *slog.Logger
	events     *os.File
	translator *translator
	mine       uint64                        // the cookie of this namespace
	held       map[uint64]*home.Registration // by cookie; ours is always there
	last       map[netip.Addr]uint64         // what is registered
	disputed   map[netip.Addr]bool
	absent     map[string]bool // of the names
}

// Open opens a registrar, and begins to listen. The fabric directory must be there.
func Open(fabricDir string, names []string, log *slog.Logger) (_ *Registrar, err error) {
	defer func() {
		if errors.Is(err, unix.EPERM) {
			err = fmt.Errorf("%w; run as root (it needs CAP_NET_BROADCAST, and CAP_SYS_ADMIN and CAP_SYS_PTRACE to look into other network namespaces, and CAP_NET_ADMIN to ask what they translate)", err)
		}
	}()
	self, err := netns.Open("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	r := &Registrar{fabricDir: fabricDir, names: names, log: log,
		held: make(map[uint64]*home.Registration), disputed: make(map[netip.Addr]bool), absent: make(map[string]bool)}
	if r.mine, err = self.Cookie(); err != nil {
		return nil, err
	}
	if r.events, err = listen(); err != nil {
		return nil, err
	}
	if r.held[r.mine], err = home.Register(fabricDir, r.mine); err != nil {
		r.events.Close()
		return nil, err
	}
	if r.translator, err = openTranslator(fabricDir, r.mine, log); err != nil { // such as too many users of inotify
		log.Warn("connections whose addresses are translated stay on TCP", "err", err)
	}
	return r, nil
}

// listen opens a socket that hears of changes in this namespace and in those that have
// a number here.
func listen() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	err = unix.SetsockoptInt(fd, unix.SOL_NETLINK, unix.NETLINK_LISTEN_ALL_NSID, 1)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_LINK |
			unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_ROUTE})
	}
	if err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("listen to changes of network namespaces: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

const (
	// settle is how long changes that come together are collected.
	settle = 10 * time.Millisecond
	// After a look there is none for so many times as long as it has taken.
	rest = 20
	// A namespace that was not found is looked for again so soon, and ever later.
	soonest, latest = 100 * time.Millisecond, 10 * time.Second
)

// Run keeps the addresses registered until ctx ends, and takes them back then. It calls
// ready once all that are there are registered.
func (r *Registrar) Run(ctx context.Context, ready func()) (err error) {
	changes, deaf := make(chan struct{}, 1), make(chan struct{})
	var why error
	go func() {
		defer close(deaf)
		why = r.hear(changes)
	}()
	translated := make(chan struct{})
	go func() {
		defer close(translated)
		if r.translator == nil {
			return
		}
		if err := r.translator.run(); !errors.Is(err, os.ErrClosed) {
			r.log.Warn("connections whose addresses are translated stay on TCP from now on", "err", err)
		}
	}()
	defer func() {
		r.events.Close() // which ends hear
		<-deaf
		if r.translator != nil {
			r.translator.events.Close() // which ends run
		}
		<-translated
		err = errors.Join(err, r.close())
	}()
	pause, told := soonest, false
	for first := true; ; first = false {
		begin := time.Now()
		missing, err := r.look()
		end := time.Now()
		if err != nil && first {
			return err
		}
		if err != nil {
			r.log.Warn("cannot see who is there", "err", err)
		}
		if first {
			ready()
		}
		var again <-chan time.Time
		if missing || err != nil {
			again = time.After(pause)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-deaf:
			return fmt.Errorf("listen to changes of network namespaces: %w", why)
		case <-changes:
			pause = soonest
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(max(settle, time.Until(end.Add(rest*end.Sub(begin))))):
			}
		case <-again:
			pause = min(2*pause, latest)
			if missing && pause == latest && !told {
				told = true
				r.log.Warn("somebody there has no lanes: no process of that network namespace is to be seen here, and it is not mounted")
			}
		}
	}
}

// hear tells of changes until the events are closed.
func (r *Registrar) hear(changes chan<- struct{}) error {
	for {
		var message [1]byte // the rest is dropped
		if _, err := r.events.Read(message[:]); err != nil && !errors.Is(err, unix.ENOBUFS) {
			return err
		}
		select {
		case changes <- struct{}{}:
		default:
		}
	}
}

// look registers who is there now, and nobody else. missing: a namespace was not found.
func (r *Registrar) look() (missing bool, err error) {
	found, err := members(r.names, r.mine)
	if err != nil {
		return false, err
	}
	for _, name := range r.names {
		if !slices.Contains(found.names, name) && !r.absent[name] {
			r.log.Warn("there is no such bridge, nor a veth on none; it is waited for", "name", name)
		}
		r.absent[name] = !slices.Contains(found.names, name)
	}
	owner, wanted := r.judge(found.all), map[uint64][]netip.Addr{r.mine: nil}
	paths := make(map[uint64]string)
	for _, m := range found.all {
		paths[m.cookie] = m.path
	}
	if r.translator != nil {
		r.translator.know(owner, paths)
	}
	for a, cookie := range owner {
		wanted[cookie] = append(wanted[cookie], a)
	}
	var errs []error
	for cookie := range r.held {
		if _, is := wanted[cookie]; !is {
			errs = append(errs, r.held[cookie].Hold(nil))
			delete(r.held, cookie)
		}
	}
	for cookie, addresses := range wanted {
		registration, err := r.of(cookie)
		if err == nil {
			err = registration.Hold(addresses)
		}
		errs = append(errs, err)
	}
	r.tell(owner)
	return found.missing, errors.Join(errs...)
}

// of is the registration of a namespace.
func (r *Registrar) of(cookie uint64) (*home.Registration, error) {
	if known := r.held[cookie]; known != nil {
		return known, nil
	}
	fresh, err := home.Register(r.fabricDir, cookie)
	if err == nil {
		r.held[cookie] = fresh
	}
	return fresh, err
}

// judge says whose each address is.
func (r *Registrar) judge(all []member) map[netip.Addr]uint64 {
	owner, disputed := make(map[netip.Addr]uint64), make(map[netip.Addr]bool)
	for _, m := range all {
		for _, a := range m.addresses {
			if other, taken := owner[a]; taken && other != m.cookie {
				disputed[a] = true
			}
			owner[a] = m.cookie
		}
	}
	for a := range disputed {
		delete(owner, a)
		if !r.disputed[a] {
			r.log.Warn("two network namespaces have one address: no lanes for it", "address", a)
		}
	}
	r.disputed = disputed
	return owner
}

// tell logs what has changed.
func (r *Registrar) tell(owner map[netip.Addr]uint64) {
	for _, a := range slices.SortedFunc(maps.Keys(owner), netip.Addr.Compare) {
		if r.last[a] != owner[a] {
			r.log.Info("registered", "address", a, "namespace", fmt.Sprintf("%x", owner[a]))
		}
	}
	for _, a := range slices.SortedFunc(maps.Keys(r.last), netip.Addr.Compare) {
		if _, is := owner[a]; !is {
			r.log.Info("gone", "address", a)
		}
	}
	r.last = owner
}

// Addresses is how many are registered. It belongs to the goroutine of Run, so to ready.
func (r *Registrar) Addresses() int { return len(r.last) }

// close takes all back, and the directory with it.
func (r *Registrar) close() error {
	var errs []error
	if r.translator != nil {
		errs = append(errs, r.translator.close())
	}
	for _, h := range r.held {
		errs = append(errs, h.Hold(nil))
	}
	return errors.Join(append(errs, r.held[r.mine].Close())...)
}
