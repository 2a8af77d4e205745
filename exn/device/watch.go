package device

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// An AddressWatcher is a device whose addresses others may change: an administrator or a DHCP
// client.
type AddressWatcher interface {
	// WatchAddresses calls f with the addresses of the device, first soon and then whenever
	// they or its offloads have changed, on a goroutine of its own. It is called once. stop
	// returns when f will not be called any more.
	WatchAddresses(f func([]netip.Prefix)) (stop func(), err error)
}

var _ AddressWatcher = (*TunTap)(nil)

// addressEvents opens a netlink socket for the namespace of the calling thread. It receives a
// message when addresses change, or whether packets may be forwarded. The watcher does not parse
// the messages; it only notes that something has changed. So it misses nothing when the socket
// overflows.
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
		told := false
		for changed, watched := true, true; watched; changed, watched = d.hear() {
			now, err := last, error(nil)
			if changed {
				now, err = d.prefixes()
			}
			if err != nil {
				continue // the interface is gone: the loop will notice
			}
			if big := d.lookForBig(); !told || big || !slices.Equal(now, last) {
				f(now)
			}
			last, told = now, true
		}
	})
	return func() {
		d.events.Close() // this ends the read
		over.Wait()
	}, nil
}

func (d *TunTap) prefixes() (all []netip.Prefix, err error) {
	s, err := d.Status()
	if err != nil {
		return nil, err
	}
	for _, a := range s.Addresses {
		all = append(all, a.Prefix)
	}
	return all, nil
}

// hear waits until something in the namespace has changed, or it is time to check for forwarding
// again. watched is false once watching has ended.
func (d *TunTap) hear() (changed, watched bool) {
	var message [1]byte // the rest of the message is dropped
	_, err := d.events.Read(message[:])
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = d.events.SetReadDeadline(time.Time{})
		d.due.Store(false) // after the reset, so that no deadline is lost
		return false, true
	}
	return true, err == nil || errors.Is(err, unix.ENOBUFS)
}
