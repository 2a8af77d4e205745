package device

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
)

// An AddressWatcher is a device that others may give addresses, or take them from:
// an administrator, or a DHCP client.
type AddressWatcher interface {
	// WatchAddresses calls f with the addresses of the device, soon and whenever they or
	// its offloads have changed, on a goroutine of its own. It is called once. stop returns
	// when f will not be called any more.
	WatchAddresses(f func([]netip.Prefix)) (stop func(), err error)
}

var _ AddressWatcher = (*TunTap)(nil)

// addressEvents opens a netlink socket that hears when addresses change in the
// namespace of the calling thread, or whether packets are passed on. What it says is not
// looked at, only that something has changed: so nothing is missed when it overflows.
func addressEvents() (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("netlink: %w", err)
	}
	const changes = unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR | 1<<(unix.RTNLGRP_IPV4_NETCONF-1)
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: changes}); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("netlink: %w", err)
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}

// WatchAddresses implements AddressWatcher.
func (d *TunTap) WatchAddresses(f func([]netip.Prefix)) (stop func(), err error) {
	var over sync.WaitGroup
	over.Go(func() {
		var last []netip.Prefix
		for first := true; ; first = false {
			// An error here means that the interface is gone: the loop learns of that.
			if s, err := d.Status(); err == nil {
				var now []netip.Prefix
				for _, a := range s.Addresses {
					now = append(now, a.Prefix)
				}
				if big := d.lookForBig(); first || big || !slices.Equal(now, last) {
					f(now)
				}
				last = now
			}
			if !d.heardOfAddresses() {
				return
			}
		}
	})
	return func() {
		d.events.Close() // which ends the read
		over.Wait()
	}, nil
}

// heardOfAddresses waits until something of the namespace has changed. It returns
// false when the watch is over.
func (d *TunTap) heardOfAddresses() bool {
	var message [1]byte // the rest is dropped
	_, err := d.events.Read(message[:])
	return err == nil || errors.Is(err, unix.ENOBUFS)
}
