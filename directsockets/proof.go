package directsockets

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/diag"
	"exnet/directsockets/status"
)

// A proof shows that the peer owns the other end of a connection. The TCP socket itself is never
// passed, because its receiver could read, inject bytes and keep the connection open. Instead:
//
//  1. The kernel tells us through sock_diag the inode and the uid of the socket at the other
//     end.
//  2. The uid of the peer process, from SO_PEERCRED of the control socket, must be that uid.
//  3. The peer passes an O_PATH descriptor of its socket. It can be neither read, written nor
//     reopened, and does not keep the socket open. statx names its inode and the kernel's file
//     system for sockets, at the same price whatever was passed. Only a process that holds the
//     socket, or may look into one that does, can have made it.
//  4. If the other end is in another network namespace, a sock_diag socket of ours does not see it.
//     Then the peer passes a sock_diag socket too, and we ask question 1 there. It must belong to
//     the namespace in which the address was registered (package home).
//
// The peer also holds that sock_diag socket. It can take answers away, and then the connection
// stays on TCP, and it may have asked questions of its own before. But it cannot forge an answer:
// the kernel names the sender of an answer, our question has a number that cannot be guessed, and
// the answer must be about our connection.
//
// In a user namespace, all users that it does not map look alike, as the overflow uid. Then step 2
// proves nothing, so we refuse that uid.
//
// So far we know who owns the socket with the right addresses. If packets pass more than the
// loopback, this may still be the end of an older connection that has not heard of its peer's end,
// while ours leads elsewhere because the addresses are now translated by other rules. So we also
// ask the kernel what both ends have sent and received. What one end has sent, and what it knows to
// have arrived, must match what the other has received, except for bytes in flight. And neither end
// may be retransmitting to a silent peer.

// makeProof makes the descriptors that we pass to the peer.
func makeProof(socket int, abroad bool) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
		}
	}()
	shown, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", socket), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, os.NewSyscallError("open", err)
	}
	fds = []int{shown}
	if abroad {
		asks, err := diag.Open()
		if err != nil {
			return fds, os.NewSyscallError("socket", err)
		}
		fds = append(fds, asks)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// isDiagOf reports whether fd is a sock_diag socket of the network namespace with this cookie. Only
// then do answers come from the kernel, and for that namespace.
func isDiagOf(fd int, net uint64) bool {
	domain, err1 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	protocol, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	cookie, err3 := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err1 == nil && err2 == nil && err3 == nil &&
		domain == unix.AF_NETLINK && protocol == unix.NETLINK_SOCK_DIAG && cookie == net
}

// openDiag opens a sock_diag socket. It must be in the network namespace with this cookie, unless
// the kernel has no cookies. A program may hold sockets of another namespace than its thread is in,
// and another connection there may have the same addresses.
func openDiag(here uint64) (int, error) {
	s, err := diag.Open()
	if err != nil || here == 0 {
		return s, err
	}
	if cookie, err := unix.GetsockoptUint64(s, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE); err != nil || cookie != here {
		unix.Close(s)
		return -1, unix.EXDEV
	}
	return s, nil
}

// checkProof judges what a peer of this uid has passed for the other end of c. It returns
// reasonNone if the peer owns it. It returns reasonNoPeer if the peer does, but we cannot tell it
// from an end of another connection at the moment.
func (c *Conn) checkProof(inode uint64, uid uint32, handed []int) status.Reason {
	if len(handed) == 0 || inode == 0 || !someone(uid) {
		return reasonProof
	}
	asks, err := openDiag(c.netns)
	if err != nil {
		return reasonProof
	}
	defer unix.Close(asks)
	there := asks
	if c.peerNet != 0 {
		if len(handed) < 2 || !isDiagOf(handed[1], c.peerNet) {
			return reasonProof
		}
		there = handed[1]
	}
	compare := c.peerNet != 0 || c.translates
	var before, after diag.End
	if compare {
		before, _ = lookup(asks, c.tuple)
	}
	far, found := lookup(there, c.other)
	if !found || far.Inode != inode || far.UID != uid {
		return reasonProof
	}
	if !shows(handed[0], inode) {
		return reasonProof
	}
	if compare {
		after, _ = lookup(asks, c.tuple)
		if !fit(before, far, after) {
			return reasonNoPeer
		}
	}
	return reasonNone
}

// fit reports whether, judging by the bytes they carried, these may be the ends of one connection.
// We asked about our end before and after the far one, so bytes in flight appear in one of the two.
func fit(before, far, after diag.End) bool {
	const slack = 2 // SYN and FIN
	return before.Counts && far.Counts && after.Counts && !before.Repeats && !far.Repeats &&
		before.Acknowledged <= far.Received+slack && far.Received <= after.Sent+slack &&
		before.Received <= far.Sent+slack && far.Acknowledged <= after.Received+slack
}

// elsewhere reports whether the connection is established although no socket in the network
// namespace of our end is its other end.
func (c *Conn) elsewhere() (yes bool) {
	asks, err := openDiag(c.netns)
	if err != nil {
		return false
	}
	defer unix.Close(asks)
	if _, found := lookup(asks, c.other); found {
		return false
	}
	c.control(func(fd int) {
		const established = 1
		t, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		yes = err == nil && t.State == established
	})
	return yes
}

// someone reports whether uid is a known user, and not the one that all unknown users look like.
func someone(uid uint32) bool {
	const overflow = 65534 // unless changed in /proc/sys/kernel/overflowuid
	return uid != overflow || allMapped()
}

// allMapped reports whether this user namespace maps every user, as the first one does.
var allMapped = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	const everyone = "4294967295"
	return err == nil && slices.Equal(strings.Fields(string(text)), []string{"0", "0", everyone})
})

// look is fstat that never waits: another process could delay the answer for another kind of file,
// such as one of FUSE.
func look(fd int) (s unix.Statx_t, err error) {
	err = unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE|unix.STATX_INO, &s)
	return s, err
}

// shows says that the descriptor is an O_PATH one of the socket with this inode.
func shows(fd int, inode uint64) bool {
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_PATH == 0 {
		return false
	}
	s, err := look(fd)
	own, known := sockets()
	return err == nil && known && s.Mode&unix.S_IFMT == unix.S_IFSOCK && s.Ino == inode &&
		s.Dev_major == own.Dev_major && s.Dev_minor == own.Dev_minor
}

// sockets is what the kernel says of a socket, which has the device of its file system for them.
var sockets = sync.OnceValues(func() (of unix.Statx_t, known bool) {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return of, false
	}
	defer unix.Close(s)
	of, err = look(s)
	return of, err == nil
})

// lookup asks the kernel, through a sock_diag socket, for the socket with these addresses.
func lookup(asked int, t tuple) (diag.End, bool) {
	e, err := diag.Lookup(asked, unix.IPPROTO_TCP, t.local, t.remote)
	return e, err == nil
}
