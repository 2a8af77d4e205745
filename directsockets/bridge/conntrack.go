package bridge

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"syscall"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A packet is the address pair of a packet of a TCP connection.
type packet struct{ src, dst netip.AddrPort }

// pass returns the packet as it leaves the network namespace of this thread. The namespace's
// connection table (conntrack) knows what it translates.
func (p packet) pass() (packet, error) {
	family := nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0}
	if p.src.Addr().Is6() {
		family.NfgenFamily = unix.AF_INET6
	}
	ask := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|nl.IPCTNL_MSG_CT_GET, 0)
	ask.AddData(&family)
	ask.AddData(p.attribute()) // this finds packets of both directions
	answers, err := exchange(ask.Serialize())
	if errors.Is(err, unix.ENOENT) { // unknown connection, or the module is missing
		return p, nil
	}
	if err != nil {
		return p, fmt.Errorf("ask for the translation of a connection: %w", err)
	}
	for _, answer := range answers {
		a := answer.Data
		var way [2]packet // one per direction, as they come in
		err := attributes(a[min(nl.SizeofNfgenmsg, len(a)):], func(kind int, value []byte) (err error) {
			if kind == nl.CTA_TUPLE_ORIG || kind == nl.CTA_TUPLE_REPLY {
				way[kind-nl.CTA_TUPLE_ORIG], err = parsePacket(value)
			}
			return err
		})
		if err != nil {
			return p, err
		}
		for i := range way {
			if way[i] == p { // it goes out like the answers come in, with the ends exchanged
				return packet{way[1-i].dst, way[1-i].src}, nil
			}
		}
	}
	return p, nil
}

// exchange asks the kernel, which answers at once.
func exchange(question []byte) ([]syscall.NetlinkMessage, error) {
	s, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	defer unix.Close(s)
	if err := unix.Sendto(s, question, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, err
	}
	var b [4096]byte
	n, from, err := unix.Recvfrom(s, b[:], 0)
	if err != nil {
		return nil, err
	}
	if kernel, ok := from.(*unix.SockaddrNetlink); !ok || kernel.Pid != 0 {
		return nil, unix.EPROTO
	}
	answers, err := syscall.ParseNetlinkMessage(b[:n])
	for _, a := range answers {
		if a.Header.Type == unix.NLMSG_ERROR && len(a.Data) >= 4 {
			return nil, unix.Errno(-int32(binary.NativeEndian.Uint32(a.Data)))
		}
	}
	return answers, err
}

// attribute encodes the packet for a question.
func (p packet) attribute() *nl.RtAttr {
	const nested = int(nl.NLA_F_NESTED)
	all := nl.NewRtAttr(nested|nl.CTA_TUPLE_ORIG, nil)
	src, dst := nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	if p.src.Addr().Is4() {
		src, dst = nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	}
	ip := all.AddRtAttr(nested|nl.CTA_TUPLE_IP, nil)
	ip.AddRtAttr(src, p.src.Addr().AsSlice())
	ip.AddRtAttr(dst, p.dst.Addr().AsSlice())
	proto := all.AddRtAttr(nested|nl.CTA_TUPLE_PROTO, nil)
	proto.AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_TCP})
	proto.AddRtAttr(nl.CTA_PROTO_SRC_PORT, binary.BigEndian.AppendUint16(nil, p.src.Port()))
	proto.AddRtAttr(nl.CTA_PROTO_DST_PORT, binary.BigEndian.AppendUint16(nil, p.dst.Port()))
	return all
}

// parsePacket parses the encoding of attribute.
func parsePacket(b []byte) (packet, error) {
	var src, dst netip.Addr
	var srcPort, dstPort uint16
	address := func(to *netip.Addr, value []byte) {
		a, _ := netip.AddrFromSlice(value) // otherwise it stays invalid and equals no packet's
		*to = a
	}
	port := func(to *uint16, value []byte) {
		if len(value) == 2 {
			*to = binary.BigEndian.Uint16(value)
		}
	}
	err := attributes(b, func(part int, value []byte) error {
		return attributes(value, func(kind int, value []byte) error {
			switch {
			case part == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_SRC || kind == nl.CTA_IP_V6_SRC):
				address(&src, value)
			case part == nl.CTA_TUPLE_IP && (kind == nl.CTA_IP_V4_DST || kind == nl.CTA_IP_V6_DST):
				address(&dst, value)
			case part == nl.CTA_TUPLE_PROTO && kind == nl.CTA_PROTO_SRC_PORT:
				port(&srcPort, value)
			case part == nl.CTA_TUPLE_PROTO && kind == nl.CTA_PROTO_DST_PORT:
				port(&dstPort, value)
			}
			return nil
		})
	})
	return packet{netip.AddrPortFrom(src, srcPort), netip.AddrPortFrom(dst, dstPort)}, err
}

// attributes calls f for each attribute in b.
func attributes(b []byte, f func(kind int, value []byte) error) error {
	all, err := nl.ParseRouteAttr(b)
	for _, a := range all {
		if err == nil {
			err = f(int(a.Attr.Type&nl.NLA_TYPE_MASK), a.Value)
		}
	}
	return err
}
