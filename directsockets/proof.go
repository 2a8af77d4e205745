package directsockets

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"exnet/directsockets/internal/diag"
	"exnet/directsockets/status"
)

// Proof of owning the other end of a connection. The TCP socket itself is never
// passed: who gets it could read, inject and keep the connection open. Instead:
//
//  1. the kernel tells by sock_diag which inode and which uid the socket at the
//     other end has;
//  2. the uid of the peer process, from SO_PEERCRED of the control socket, must
//     be that uid;
//  3. the peer hands an epoll descriptor that watches its socket. An epoll set
//     takes no reference to what it watches and gives no access to it, and
//     /proc/self/fdinfo names inode and device of each member. Only who holds
//     the socket can have put it there;
//  4. where the other end is in another network namespace, our kernel does not know
//     it here. The peer hands a sock_diag socket too, in which 1 is asked. That must
//     be of the namespace in which the address was registered (package home).
//
// The peer has that socket as well. It can take answers away, and then the connection
// stays on TCP; and it can have asked for others before. It cannot forge one: who
// answers is told by the kernel, the question has a number that cannot be guessed,
// and the answer must be about our connection.
//
// In a user namespace all users that it does not map look alike, and are taken for
// nobody's: then 2 says nothing, and there is no proof.
//
// All that shows whose the socket with the other ends is. Where packets pass more than the
// loopback that may still be the end of an older connection, which has not heard of its peer's
// end, while ours goes elsewhere: the addresses are translated by other rules than before. So the
// kernel is asked as well what both ends have sent and received. What the one has sent and has
// been told to have come must be what the other has received, but for what is under way, and
// neither may be waiting for a peer that is silent.

// makeProof makes the descriptors that we hand.
func makeProof(socket int, abroad bool) (fds []int, err error) {
	defer func() {
		if err != nil {
			closeAll(fds)
		}
	}()
	watcher, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	fds = []int{watcher}
	if err := unix.EpollCtl(watcher, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{}); err != nil {
		return fds, os.NewSyscallError("epoll_ctl", err)
	}
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

// isDiagOf: a sock_diag socket of the network namespace with this cookie. Only then it
// is the kernel that answers, and for that namespace.
func isDiagOf(fd int, net uint64) bool {
	domain, err1 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	protocol, err2 := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	cookie, err3 := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	return err1 == nil && err2 == nil && err3 == nil &&
		domain == unix.AF_NETLINK && protocol == unix.NETLINK_SOCK_DIAG && cookie == net
}

// openDiag makes a sock_diag socket, which has to be of the network namespace with that cookie,
// unless the kernel has none: programs have sockets of others than a thread of theirs is in,
// where another connection may have the same ends.
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

// checkProof judges what a peer of this uid has handed for the other end of c. reasonNone: it is its own; reasonNoPeer:
// but, just now, not to be told from an end of another connection.
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
	if device, member := watches(handed[0], inode); !member || device != socketDevice() {
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

// fit: by what they have carried these may be the ends of one connection. Ours was asked about before and after the
// far one: what is on its way then is in one of the two.
func fit(before, far, after diag.End) bool {
	const slack = 2 // SYN and FIN
	return before.Counts && far.Counts && after.Counts && !before.Repeats && !far.Repeats &&
		before.Acknowledged <= far.Received+slack && far.Received <= after.Sent+slack &&
		before.Received <= far.Sent+slack && far.Acknowledged <= after.Received+slack
}

// elsewhere: in the network namespace of our end no socket is the other end of a connection that is
// established.
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

// someone tells a user from the one that unknown ones look like.
func someone(uid uint32) bool {
	const overflow = 65534 // unless changed in /proc/sys/kernel/overflowuid
	return uid != overflow || allMapped()
}

// allMapped: this user namespace knows every user, as the first one does.
var allMapped = sync.OnceValue(func() bool {
	text, err := os.ReadFile("/proc/self/uid_map")
	const everyone = "4294967295"
	return err == nil && slices.Equal(strings.Fields(string(text)), []string{"0", "0", everyone})
})

// watches looks for a member with this inode in an epoll set, and gives the
// device of its file system.
func watches(epfd int, inode uint64) (device uint64, found bool) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/self/fdinfo/%d", epfd))
	if err != nil {
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "tfd:") {
			continue
		}
		field := func(name string, base int) (uint64, bool) {
			_, rest, ok := strings.Cut(line, name)
			value, _, _ := strings.Cut(strings.TrimSpace(rest), " ")
			n, err := strconv.ParseUint(value, base, 64)
			return n, ok && err == nil
		}
		is, ok := field(" ino:", 16)
		device, okDevice := field(" sdev:", 16)
		if ok && okDevice && is == inode {
			return device, true
		}
	}
	return 0, false
}

// socketDevice is the device number of the kernel's socket file system.
var socketDevice = sync.OnceValue(func() uint64 {
	s, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(s)
	var st unix.Stat_t
	if unix.Fstat(s, &st) != nil {
		return 0
	}
	fds, err := makeProof(s, false)
	if err != nil {
		return 0
	}
	defer closeAll(fds)
	device, _ := watches(fds[0], st.Ino)
	return device
})

// lookup asks the kernel, by a sock_diag socket, for the socket that sees a connection so.
func lookup(asked int, t tuple) (diag.End, bool) {
	e, err := diag.Lookup(asked, unix.IPPROTO_TCP, t.local, t.remote)
	return e, err == nil
}
