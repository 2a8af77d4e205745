package device

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"exnet/exteth"
	"exnet/mtu"
)

const tunPath = "/dev/net/tun"

// aliasPrefix starts the alias of every interface that is ours. An interface without it belongs to
// somebody else.
const aliasPrefix = "exnet: "

// A TunTap is a TUN or TAP of the kernel.
type TunTap struct {
	fd         int
	name       string
	index      int
	kind       Kind
	mtu        int
	adopted    bool
	handle     *netlink.Handle // of the interface's namespace
	events     *os.File        // netlink socket for changes in that namespace
	forwarding forwarding

	knowsBig bool        // the kernel supports exteth.CapBig
	due      atomic.Bool // a check whether big packets can be taken is scheduled

	mu       sync.Mutex // guards the fields below
	offloads exteth.Caps
	big      bool // exteth.CapBig is possible
	closed   bool
}

var _ Device = (*TunTap)(nil)

// Open makes the interface and brings it up. If a crashed daemon has left one behind, Open adopts
// it with its connections. When Open fails, no interface of the name is left, unless it belongs to
// somebody else.
func Open(c Config) (*TunTap, error) {
	if err := c.complete(); err != nil {
		return nil, fmt.Errorf("interface %s: %w", c.Name, err)
	}
	d := &TunTap{fd: -1, name: c.Name, kind: c.Kind, mtu: c.MTU}
	if err := inNamespace(c.Namespace, func() error { return d.attach(c) }); err != nil {
		d.Close()
		return nil, fmt.Errorf("interface %s: %w", c.Name, err)
	}
	if err := d.configure(c); err != nil {
		d.Close()
		return nil, fmt.Errorf("interface %s: %w", c.Name, err)
	}
	return d, nil
}

// attach opens what belongs to the namespace. The calling thread is in it.
func (d *TunTap) attach(c Config) (err error) {
	if d.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return fmt.Errorf("netlink: %w", permission(err))
	}
	if d.events, err = addressEvents(); err != nil {
		return err
	}
	if d.adopted, err = d.leftover(); err != nil {
		return err
	}
	fd, err := unix.Open(tunPath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return openError(fmt.Errorf("open %s: %w", tunPath, err))
	}
	request, err := unix.NewIfreq(d.name)
	if err != nil {
		unix.Close(fd)
		return err
	}
	flags := uint16(unix.IFF_TUN | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if d.kind == TAP {
		flags = unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR
	}
	if !d.adopted {
		flags |= unix.IFF_TUN_EXCL // it may have been made since we looked
	}
	request.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		unix.Close(fd)
		return d.attachError(err)
	}
	d.fd = fd
	d.forwarding = openForwarding(d.name)
	return nil
}

// attachError explains an error of TUNSETIFF.
func (d *TunTap) attachError(err error) error {
	switch {
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("is in use by another process (exn-tun show interface, or ip -d link show %s); choose another name: %w", d.name, ErrTaken)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("is there already, of another kind (TUN or TAP); remove it (ip link del %s) or choose another name: %w", d.name, ErrTaken)
	}
	return permission(fmt.Errorf("TUNSETIFF: %w", err))
}

// leftover looks for an interface of our name. It returns true for one that a daemon has left
// behind, and an error for one that belongs to somebody else.
func (d *TunTap) leftover() (bool, error) {
	link, err := d.handle.LinkByName(d.name)
	if gone := (netlink.LinkNotFoundError{}); errors.As(err, &gone) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("netlink: %w", err)
	}
	if _, isTun := link.(*netlink.Tuntap); isTun && strings.HasPrefix(link.Attrs().Alias, aliasPrefix) {
		return true, nil
	}
	return false, fmt.Errorf("is there already and not ours, but a %s (ip -d link show %s); choose another name: %w", link.Type(), d.name, ErrTaken)
}

// configure sets up the attached interface. It makes it persistent after the alias is set. So a
// crash before leaves nothing, and one after leaves an interface that is known to be ours.
func (d *TunTap) configure(c Config) error {
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETVNETHDRSZ, mtu.VNetHeader); err != nil {
		return fmt.Errorf("virtio header: %w", err)
	}
	// Before it comes up, so that nobody sends while nobody reads.
	if err := errors.Join(d.SetOffloads(c.Offloads), d.SetCarrier(false)); err != nil {
		return err
	}
	link, err := d.handle.LinkByName(d.name)
	if err != nil {
		return fmt.Errorf("netlink: %w", err)
	}
	d.index = link.Attrs().Index
	if err := d.setUpLink(link, c); err != nil {
		return err
	}
	if err := unix.IoctlSetInt(d.fd, unix.TUNSETPERSIST, 1); err != nil {
		return fmt.Errorf("making it persistent: %w", err)
	}
	if err := d.allowBig(); err != nil {
		return err
	}
	if err := d.setAddresses(link, c); err != nil {
		return err
	}
	if err := d.handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("bringing it up: %w", err)
	}
	return d.setRoutes(c)
}

// Close removes the interface. It is idempotent, and must be the last call: a Read or Write on
// another goroutine must have returned.
func (d *TunTap) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	d.closed = true
	var err error
	if d.fd >= 0 {
		// Fails if somebody has removed the interface; then there is nothing to do.
		if err = unix.IoctlSetInt(d.fd, unix.TUNSETPERSIST, 0); err == unix.EBADFD {
			err = nil
		}
		err = errors.Join(err, unix.Close(d.fd))
	}
	if d.handle != nil {
		d.handle.Close()
	}
	if d.events != nil {
		d.events.Close() // the watcher may have closed it already
	}
	d.forwarding.close()
	if err != nil {
		return fmt.Errorf("removing interface %s: %w", d.name, err)
	}
	return nil
}

// FD returns the descriptor for poll(2): readable when there is a packet.
func (d *TunTap) FD() int { return d.fd }

// Name returns the name that the interface was opened with.
func (d *TunTap) Name() string { return d.name }

// Kind implements Device.
func (d *TunTap) Kind() Kind { return d.kind }

// MTU implements Device.
func (d *TunTap) MTU() int { return d.mtu }

// Adopted reports whether a crashed process had left the interface behind.
func (d *TunTap) Adopted() bool { return d.adopted }

// Offloads returns the offloads in effect.
func (d *TunTap) Offloads() exteth.Caps {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.big {
		return d.offloads &^ exteth.CapBig
	}
	return d.offloads
}

var _ Offloader = (*TunTap)(nil)

// SetOffloads implements Offloader.
func (d *TunTap) SetOffloads(o exteth.Caps) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.closedError()
	}
	got, err := setOffloads(d.fd, o)
	if err != nil {
		return err
	}
	d.offloads = got
	return nil
}

// SetCarrier sets the carrier, as ip link shows it.
func (d *TunTap) SetCarrier(on bool) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return d.closedError()
	}
	state := 0
	if on {
		state = 1
	}
	if err := unix.IoctlSetPointerInt(d.fd, unix.TUNSETCARRIER, state); err != nil {
		return fmt.Errorf("carrier of %s: %w", d.name, err)
	}
	return nil
}
