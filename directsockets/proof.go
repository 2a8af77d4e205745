package directsockets

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"fmt"
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
		diag, err := newDiag()
		if err != nil {
			return fds, err
		}
		fds = append(fds, diag)
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// newDiag makes a sock_diag socket of the network namespace that we are in.
func newDiag() (int, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	return s, nil
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

// checkProof judges what a peer of this uid has handed for the other end of t, which is
// in the network namespace net, or in ours if that is 0.
func checkProof(t tuple, net, inode uint64, uid uint32, handed []int) bool {
	if len(handed) == 0 || inode == 0 || !someone(uid) {
		return false
	}
	var is uint64
	var owner uint32
	found := false
	if net == 0 {
		diag, err := newDiag()
		if err != nil {
			return false
		}
		defer unix.Close(diag)
		is, owner, found = lookup(diag, t)
	} else if len(handed) > 1 && isDiagOf(handed[1], net) {
		is, owner, found = lookup(handed[1], t)
	}
	if !found || is != inode || owner != uid {
		return false
	}
	device, member := watches(handed[0], inode)
	return member && device == socketDevice()
}

// elsewhere: in our network namespace no socket is the other end of a connection that is
// established.
func (c *Conn) elsewhere() (yes bool) {
	diag, err := newDiag()
	if err != nil {
		return false
	}
	defer unix.Close(diag)
	if _, _, found := lookup(diag, c.tuple); found {
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

// diagnosis is the request and the answer of sock_diag: struct inet_diag_req_v2
// and struct inet_diag_msg of linux/inet_diag.h, whose id begins at these offsets.
const (
	diagRequest   = 16 + 56 // with the netlink header
	diagRequestID = 16 + 8
	diagAnswerID  = 16 + 4
	diagUID       = 16 + 64
	diagInode     = 16 + 68
	diagAnswer    = 16 + 72
	diagEnds      = 2 + 2 + 16 + 16 // of the id: ports and addresses
	byFamily      = 20              // SOCK_DIAG_BY_FAMILY
)

// lookup asks the kernel, by a sock_diag socket, for the socket at the other end of t.
func lookup(diag int, t tuple) (inode uint64, uid uint32, found bool) {
	q := question(t)
	if err := unix.Sendto(diag, q, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, false
	}
	var a [1024]byte
	n, from, err := unix.Recvfrom(diag, a[:], unix.MSG_DONTWAIT) // answered synchronously
	sender, ok := from.(*unix.SockaddrNetlink)
	order := binary.NativeEndian
	if err != nil || !ok || sender.Pid != 0 || n < diagAnswer || order.Uint16(a[4:]) != byFamily || !bytes.Equal(a[8:12], q[8:12]) {
		return 0, 0, false
	}
	ends := q[diagRequestID:]
	if a[16] == unix.AF_INET6 { // also of an IPv6 socket with mapped addresses
		remote, local := t.remote.Addr().As16(), t.local.Addr().As16()
		putEnds(ends, t, remote[:], local[:])
	}
	if !bytes.Equal(a[diagAnswerID:diagAnswerID+diagEnds], ends[:diagEnds]) {
		return 0, 0, false // of another connection
	}
	return uint64(order.Uint32(a[diagInode:])), order.Uint32(a[diagUID:]), true
}

// question asks for the other end of t; its number is drawn at random.
func question(t tuple) []byte {
	q := make([]byte, diagRequest)
	order := binary.NativeEndian
	order.PutUint32(q[0:], diagRequest)
	order.PutUint16(q[4:], byFamily)
	order.PutUint16(q[6:], unix.NLM_F_REQUEST)
	rand.Read(q[8:12])
	q[16], q[17] = unix.AF_INET6, unix.IPPROTO_TCP
	if t.local.Addr().Is4() {
		q[16] = unix.AF_INET
	}
	order.PutUint32(q[20:], ^uint32(0)) // in any state
	id := q[diagRequestID:]
	putEnds(id, t, t.remote.Addr().AsSlice(), t.local.Addr().AsSlice())
	order.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE, twice
	return q
}

// putEnds writes ports and addresses as the other end has them.
func putEnds(id []byte, t tuple, remote, local []byte) {
	binary.BigEndian.PutUint16(id[0:], t.remote.Port())
	binary.BigEndian.PutUint16(id[2:], t.local.Port())
	copy(id[4:20], remote)
	copy(id[20:36], local)
}
