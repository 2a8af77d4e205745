// Package diag asks the kernel, by sock_diag, who owns a TCP socket and what it has carried.
package diag

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Open makes a socket for questions about the network namespace of this thread.
func Open() (int, error) {
	return unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_SOCK_DIAG)
}

// Question and answer are struct inet_diag_req_v2 and struct inet_diag_msg of linux/inet_diag.h,
// after a netlink header. Their IDs begin at these offsets.
const (
	header     = 16
	question   = header + 56
	extensions = header + 2
	questionID = header + 8
	answer     = header + 72
	answerID   = header + 4
	answerUID  = header + 64
	inode      = header + 68
	ends       = 2 + 2 + 16 + 16 // of the ID: ports and addresses
	byFamily   = 20              // SOCK_DIAG_BY_FAMILY

	information = 2 // INET_DIAG_INFO
)

var errOther = errors.New("the answer is not to this question")

// An End is what the kernel knows about a socket.
type End struct {
	Inode uint64 // 0: no process holds it any more
	UID   uint32
	// What a TCP connection has carried, as this end counts it.
	Counts                       bool   // the fields below are known
	Repeats                      bool   // it retransmits, because no acknowledgement comes
	Sent, Acknowledged, Received uint64 // bytes; a SYN and a FIN may count as one each
}

// Lookup asks, on a socket of Open, for the socket of that protocol with these ends. Only an answer
// of the kernel to this question and about that socket counts, because another process may have the
// asking socket, too. ENOENT means that there is no such socket, or that the kernel has no module
// that knows the protocol's sockets.
func Lookup(s int, protocol byte, local, remote netip.AddrPort) (End, error) {
	q := Question(protocol, local, remote)
	if err := unix.Sendto(s, q, unix.MSG_DONTWAIT, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return End{}, err
	}
	var a [1024]byte
	n, from, err := unix.Recvfrom(s, a[:], unix.MSG_DONTWAIT) // the kernel answers synchronously
	if err != nil {
		return End{}, err
	}
	order := binary.NativeEndian
	kernel, ok := from.(*unix.SockaddrNetlink)
	if !ok || kernel.Pid != 0 || n < header+4 || !bytes.Equal(a[8:12], q[8:12]) {
		return End{}, errOther
	}
	if order.Uint16(a[4:]) == unix.NLMSG_ERROR {
		return End{}, unix.Errno(-int32(order.Uint32(a[header:])))
	}
	if order.Uint16(a[4:]) != byFamily || n < answer {
		return End{}, errOther
	}
	id := q[questionID:]
	if a[header] == unix.AF_INET6 { // also for an IPv6 socket with mapped addresses
		l, r := local.Addr().As16(), remote.Addr().As16()
		putEnds(id, local, remote, l[:], r[:])
	}
	if !bytes.Equal(a[answerID:answerID+ends], id[:ends]) {
		return End{}, errOther
	}
	e := End{Inode: uint64(order.Uint32(a[inode:])), UID: order.Uint32(a[answerUID:])}
	e.count(a[answer:n])
	return e, nil
}

// count reads what an end has carried from the attributes of an answer.
func (e *End) count(attributes []byte) {
	// Offsets in struct tcp_info of linux/tcp.h; the last field came with Linux 4.19.
	const repeats, acked, received, sent, all = 2, 120, 128, 200, 208
	order := binary.NativeEndian
	for rest := attributes; len(rest) >= unix.SizeofRtAttr; {
		length, kind := int(order.Uint16(rest)), order.Uint16(rest[2:])
		if length < unix.SizeofRtAttr || length > len(rest) {
			return
		}
		if info := rest[unix.SizeofRtAttr:length]; kind == information && len(info) >= all {
			e.Counts, e.Repeats = true, info[repeats] != 0
			e.Sent, e.Acknowledged, e.Received = order.Uint64(info[sent:]), order.Uint64(info[acked:]), order.Uint64(info[received:])
		}
		rest = rest[min(len(rest), (length+unix.RTA_ALIGNTO-1)&^(unix.RTA_ALIGNTO-1)):]
	}
}

// Question returns the packet of a question, with a random sequence number.
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
	q[extensions] = 1 << (information - 1)
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
