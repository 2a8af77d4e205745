package directsockets

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
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
//     the socket can have put it there.
//
// In a user namespace all users that it does not map look alike, and are taken for
// nobody's: then 2 says nothing, and there is no proof.

// makeProof makes the descriptor that we hand.
func makeProof(socket int) (int, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return -1, os.NewSyscallError("epoll_create1", err)
	}
	if err := unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, socket, &unix.EpollEvent{}); err != nil {
		unix.Close(fd)
		return -1, os.NewSyscallError("epoll_ctl", err)
	}
	return fd, nil
}

// checkProof judges what a peer of this uid has handed for the other end of t.
func checkProof(t tuple, inode uint64, uid uint32, handed int) bool {
	is, owner, found := lookup(t)
	if handed < 0 || inode == 0 || !found || is != inode || owner != uid || !someone(uid) {
		return false
	}
	device, member := watches(handed, inode)
	return member && device == socketDevice()
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
	epfd, err := makeProof(s)
	if err != nil {
		return 0
	}
	defer unix.Close(epfd)
	device, _ := watches(epfd, st.Ino)
	return device
})

// diagnosis is the request and the answer of sock_diag: struct inet_diag_req_v2
// and struct inet_diag_msg of linux/inet_diag.h, whose id begins at these offsets.
const (
	diagRequest   = 16 + 56 // with the netlink header
	diagRequestID = 16 + 8
	diagAnswerID  = 16 + 4
	diagUID       = 16 + 64
	diagInode     = 16 + 68
	diagAnswer    = 16 + 72
	byFamily      = 20 // SOCK_DIAG_BY_FAMILY
)

// lookup asks the kernel for the socket at the other end of t.
func lookup(t tuple) (inode uint64, uid uint32, found bool) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, 0, false
	}
	defer unix.Close(s)
	var q [diagRequest]byte
	order := binary.NativeEndian
	order.PutUint32(q[0:], uint32(len(q)))
	order.PutUint16(q[4:], byFamily)
	order.PutUint16(q[6:], unix.NLM_F_REQUEST)
	order.PutUint32(q[8:], 1)
	q[16], q[17] = unix.AF_INET6, unix.IPPROTO_TCP
	if t.local.Addr().Is4() {
		q[16] = unix.AF_INET
	}
	order.PutUint32(q[20:], ^uint32(0)) // in any state
	id := q[diagRequestID:]
	put := func(port, address int, a netip.AddrPort) {
		binary.BigEndian.PutUint16(id[port:], a.Port())
		copy(id[address:address+16], a.Addr().AsSlice())
	}
	put(0, 4, t.remote)
	put(2, 20, t.local)
	order.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE, twice
	if err := unix.Sendto(s, q[:], 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, false
	}
	var a [1024]byte
	n, _, err := unix.Recvfrom(s, a[:], 0) // answered synchronously
	if err != nil || n < diagAnswer || order.Uint16(a[4:]) != byFamily || !bytes.Equal(a[diagAnswerID:diagAnswerID+4], id[:4]) {
		return 0, 0, false
	}
	return uint64(order.Uint32(a[diagInode:])), order.Uint32(a[diagUID:]), true
}
