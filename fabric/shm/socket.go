package shm

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"
)

// errProtocol means that a peer sent what no honest node sends.
var errProtocol = errors.New("illegal control message")

// writeMessage sends one message, with a descriptor unless fd is -1.
func writeMessage(conn *net.UnixConn, m message, fd int) error {
	var b [messageSize]byte
	m.encode(&b)
	var oob []byte
	if fd >= 0 {
		oob = unix.UnixRights(fd)
	}
	_, _, err := conn.WriteMsgUnix(b[:], oob, nil)
	return err
}

// readMessage receives one message and its descriptor, or -1. It closes descriptors that do not
// belong to a legal message.
func readMessage(conn *net.UnixConn) (message, int, error) {
	var b [messageSize + 1]byte
	var oob [256]byte
	n, oobn, flags, _, err := conn.ReadMsgUnix(b[:], oob[:])
	if errors.Is(err, unix.ECONNRESET) {
		// The peer closed while messages of ours were unread. The kernel reports that
		// before what the peer had sent, and only once.
		n, oobn, flags, _, err = conn.ReadMsgUnix(b[:], oob[:])
	}
	if err != nil {
		return message{}, -1, err
	}
	fds := descriptors(oob[:oobn])
	if n == 0 && oobn == 0 {
		return message{}, -1, io.EOF
	}
	m, ok := decodeMessage(b[:n], len(fds))
	if !ok || flags&(unix.MSG_CTRUNC|unix.MSG_TRUNC) != 0 {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return message{}, -1, errProtocol
	}
	if len(fds) == 0 {
		return m, -1, nil
	}
	return m, fds[0], nil
}

// descriptors returns all descriptors that came with a message.
func descriptors(oob []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range list {
		if more, err := unix.ParseUnixRights(&list[i]); err == nil {
			fds = append(fds, more...)
		}
	}
	return fds
}
