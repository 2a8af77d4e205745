// Package diag asks the kernel, by sock_diag, whose a TCP socket is.
package diag

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Open makes a socket for questions about the network namespace of this process.
func Open() (int, error) {
	return unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
}

// Question and answer are struct inet_diag_req_v2 and struct inet_diag_msg of linux/inet_diag.h
// behind a netlink header; their id begins at these offsets.
const (
	header     = 16
	question   = header + 56
	questionID = header + 8
	answer     = header + 72
	answerID   = header + 4
	answerUID  = header + 64
	inode      = header + 68
	ends       = 2 + 2 + 16 + 16 // of the id: ports and addresses
	byFamily   = 20              // SOCK_DIAG_BY_FAMILY
)

var errOther = errors.New("what came is no answer to the question")

// Lookup asks by a socket of Open for the socket of that protocol that has these ends. Only an answer of the
// kernel, to this question and about that socket, counts: another process may have the socket that asks, too.
// ENOENT: there is none, or the kernel has no module that knows the sockets of the protocol.
func Lookup(s int, protocol byte, local, remote netip.AddrPort) (ino uint64, uid uint32, err error) {
	q := Question(protocol, local, remote)
	if err := unix.Sendto(s, q, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return 0, 0, err
	}
	var a [1024]byte
	n, from, err := unix.Recvfrom(s, a[:], unix.MSG_DONTWAIT) // answered synchronously
	if err != nil {
		return 0, 0, err
	}
	order := binary.NativeEndian
	kernel, ok := from.(*unix.SockaddrNetlink)
	if !ok || kernel.Pid != 0 || n < header+4 || !bytes.Equal(a[8:12], q[8:12]) {
		return 0, 0, errOther
	}
	if order.Uint16(a[4:]) == unix.NLMSG_ERROR {
		return 0, 0, unix.Errno(-int32(order.Uint32(a[header:])))
	}
	if order.Uint16(a[4:]) != byFamily || n < answer {
		return 0, 0, errOther
	}
	id := q[questionID:]
	if a[header] == unix.AF_INET6 { // also of an IPv6 socket with mapped addresses
		l, r := local.Addr().As16(), remote.Addr().As16()
		putEnds(id, local, remote, l[:], r[:])
	}
	if !bytes.Equal(a[answerID:answerID+ends], id[:ends]) {
		return 0, 0, errOther
	}
	return uint64(order.Uint32(a[inode:])), order.Uint32(a[answerUID:]), nil
}

// Question is the packet that asks; its number is drawn at random.
func Question(protocol byte, local, remote netip.AddrPort) []byte {
	q, order := make([]byte, question), binary.NativeEndian
	order.PutUint32(q[0:], question)
	order.PutUint16(q[4:], byFamily)
	order.PutUint16(q[6:], unix.NLM_F_REQUEST)
	rand.Read(q[8:12])
	q[header], q[header+1] = unix.AF_INET6, protocol
	if local.Addr().Is4() {
		q[header] = unix.AF_INET
	}
	order.PutUint32(q[header+4:], ^uint32(0)) // in any state
	id := q[questionID:]
	putEnds(id, local, remote, local.Addr().AsSlice(), remote.Addr().AsSlice())
	order.PutUint64(id[40:], ^uint64(0)) // INET_DIAG_NOCOOKIE, twice
	return q
}

func putEnds(id []byte, local, remote netip.AddrPort, localAddr, remoteAddr []byte) {
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], localAddr)
	copy(id[20:36], remoteAddr)
}
