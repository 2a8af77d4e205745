package ofi

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// closeOnExec marks the provider's descriptors, which it makes without the
// mark: a program that is started while they are open would keep the
// connections of its dead parent alive, unseen by the peers. It runs after the
// endpoint was opened and after each connection. What is not of a kind that a
// provider has, or was there before main for a child to have, is left alone.
func (n *Node) closeOnExec() {
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range names {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= 2 {
			continue
		}
		flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
		if err != nil || flags&unix.FD_CLOEXEC != 0 {
			continue
		}
		if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err != nil || !ofProvider(fd, to) {
			continue
		}
		unix.CloseOnExec(fd)
	}
}

// ofProvider reports whether a descriptor is of a kind that a provider makes:
// sockets of the Internet, and what it sleeps on.
func ofProvider(fd int, to string) bool {
	switch {
	case strings.HasPrefix(to, "socket:"):
		domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
		if err == nil && domain == unix.AF_UNIX {
			// A pair that the provider wakes itself by has no name, unlike one
			// that a service manager passed.
			name, err := unix.Getsockname(fd)
			peer, ok := name.(*unix.SockaddrUnix)
			return err == nil && ok && peer.Name == ""
		}
		return err == nil && (domain == unix.AF_INET || domain == unix.AF_INET6)
	case strings.HasPrefix(to, "anon_inode:[eventpoll]"), strings.HasPrefix(to, "anon_inode:[eventfd]"), strings.HasPrefix(to, "/dev/infiniband/"):
		return true
	}
	return false
}
