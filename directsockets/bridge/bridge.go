// Package bridge lets direct sockets find each other on the kernel's bridges, such as Docker's, and
// where the host routes to its containers, as Calico's hosts do.
//
//	r, err := bridge.Open("/run/exn-group", []string{"docker0"}, log) // no names: all interfaces
//	err = r.Run(ctx, func() { … })                                    // until ctx ends
//
// Containers are in network namespaces of their own. The library uses no lane to another namespace
// unless a trusted process says which address lies in which namespace ([home]). For exn0's
// addresses its daemon says that. This package says it for addresses that a bridge or a route of
// this namespace leads to, and for the addresses of this namespace that containers see.
//
// # Membership
//
// One end of a veth pair names the other: its index, and the number that this namespace has given
// to the other end's namespace (IFLA_LINK, IFLA_LINK_NETNSID). The kernel writes that, so only root
// can add a namespace to the list, by joining it to this one. Of the addresses at the other end,
// those count that packets from here reach there:
//
//	the veth is         addresses at its other end        our own
//	on a bridge         in a subnet of the bridge's own   the bridge's
//	on none             that the kernel sends to through  the veth's, and for a route to one
//	                    it, without a gateway             address the kernel's source address
//
// So a process that may configure the inside of a container can only take an address from another
// container on the same bridge, or one that is routed to its own. A veth of the default route leads
// to a namespace above this one, as in a container, and is left out. The namespace itself is
// searched among those of all processes, and among those that are mounted somewhere, as ip-netns(8)
// and podman do.
//
// If two namespaces claim an address, one of them lies, and it is registered for neither.
//
// # Translated addresses
//
// An address may be translated on the way, as for a port published on the host or for the address
// of a service. Then the two ends name their connection differently. Each end's offer, in the
// fabric directory, is a question about it. To answer, a packet of the connection is followed
// through the connection tables (conntrack) of the end's own network namespace, of this one, and of
// the one to which the destination then belongs, to the socket that takes it. Both ends are told,
// for as long as an offer is believed.
//
// # When it checks
//
// The kernel reports each change of a link, an address or a route, here and in all namespaces that
// have a number here (NETLINK_LISTEN_ALL_NSID). As in package device, the reports are not parsed.
// Each makes the registrar check everything again, for a small part of the time at most. A
// namespace behind a port cannot be found while no process is in it and its mount is hidden from
// us; it is searched again from time to time. Otherwise there is nothing to do between changes.
//
// # What it is not
//
// It sees no virtual machines, no containers on macvlan or ipvlan, and none to which programs in
// the kernel (eBPF) lead instead of routes in the main table.
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

// A Registrar registers the addresses behind some interfaces of the network namespace that it was
// opened in.
type Registrar struct {
	fabricDir  string
	names      []string // of bridges and veths; none: all
	log        *slog.Logger
	events     *os.File
	translator *translator
	mine       uint64                        // the cookie of this namespace
	held       map[uint64]*home.Registration // by cookie; always includes ours
	last       map[netip.Addr]uint64         // what is registered
	disputed   map[netip.Addr]bool
	absent     map[string]bool // names without an interface
}

// Open opens a registrar and begins to listen. The fabric directory must exist.
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
	if r.translator, err = openTranslator(fabricDir, r.mine, log); err != nil {
		// such as too many users of inotify
		log.Warn("connections whose addresses are translated stay on TCP", "err", err)
	}
	return r, nil
}

// listen opens a socket that hears of changes in this namespace and in those that have a number
// here.
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
	// After a check there is a pause of this many times its duration.
	rest = 20
	// A namespace that was not found is searched again after soonest, and then ever later.
	soonest, latest = 100 * time.Millisecond, 10 * time.Second
)

// Run keeps the addresses registered until ctx ends, and then removes them. It calls ready once all
// existing ones are registered.
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
		r.events.Close() // this ends hear
		<-deaf
		if r.translator != nil {
			r.translator.events.Close() // this ends run
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

// hear reports changes until the events are closed.
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

// look registers the members that exist now, and no others. missing reports that a namespace was
// not found.
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

// of returns the registration of a namespace.
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

// judge decides which namespace each address belongs to.
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

// Addresses returns how many are registered. It may be called on the goroutine of Run, that is in
// ready.
func (r *Registrar) Addresses() int { return len(r.last) }

// close removes everything, and the directory.
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
