package shm

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// How nodes meet: each node connects to those that were attached before it, so each pair connects
// once.

// accept accepts the connections of nodes that attach after us.
func (n *Node) accept() {
	for {
		conn, err := n.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, for instance: try again when some may be free
			time.Sleep(10 * time.Millisecond)
			continue
		}
		select {
		case n.greeting <- struct{}{}:
			n.wg.Go(func() { n.meet(conn, fabric.NodeAny, sync.OnceFunc(func() { <-n.greeting })) })
		default:
			conn.Close() // honest nodes never have so many in progress
		}
	}
}

// connect meets a node that was attached before us.
func (n *Node) connect(id fabric.NodeID, met func()) {
	met = sync.OnceFunc(met)
	d := net.Dialer{Timeout: handshakePatience}
	conn, err := d.Dial("unixpacket", n.dir.socket(id))
	if err != nil {
		met()
		return // it has left meanwhile
	}
	n.meet(conn.(*net.UnixConn), id, met)
}

// meet introduces the two nodes to each other, and serves the peer until it is gone. The node that
// connected says hello first. The other answers only after it has entered it in its tables: when
// that node knows us, we know it. The node that connected waits for the answer as long as it takes,
// since the other may be stopped for now.
func (n *Node) meet(conn *net.UnixConn, want fabric.NodeID, met func()) {
	defer met()
	defer conn.Close()
	if !n.greets(conn, true) {
		return
	}
	defer n.greets(conn, false)
	connected := want != fabric.NodeAny
	if connected {
		if n.sayHello(conn) != nil {
			return
		}
	} else {
		conn.SetDeadline(time.Now().Add(handshakePatience))
	}
	p, err := n.hearHello(conn, want)
	if err != nil {
		return
	}
	if n.addPeer(p) != nil {
		p.region.unmap()
		return
	}
	met()
	if connected || n.sayHello(conn) == nil {
		conn.SetDeadline(time.Time{})
		done := make(chan struct{})
		go func() { p.write(); close(done) }()
		p.read()
		conn.Close()
		p.stopWriting()
		<-done
	} else {
		p.stopWriting()
	}
	n.removePeer(p)
}

// greets maintains the list of connections, which Close ends. It returns false if the node is
// closed.
func (n *Node) greets(conn *net.UnixConn, yes bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if yes && !n.closed {
		n.connections[conn] = true
	} else {
		delete(n.connections, conn)
	}
	return !n.closed
}

// sayHello sends our node region.
func (n *Node) sayHello(conn *net.UnixConn) error {
	n.mu.Lock()
	closed, fd := n.closed, n.region.fd
	var err error
	if !closed {
		fd, err = unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	}
	n.mu.Unlock()
	if closed || err != nil {
		return errors.Join(fabric.ErrClosed, err)
	}
	defer unix.Close(fd)
	return writeMessage(conn, message{kind: msgHello, a: regionVersion, b: uint64(n.id), d: regionMagic}, fd)
}

// hearHello receives and maps the peer's node region.
func (n *Node) hearHello(conn *net.UnixConn, want fabric.NodeID) (*peer, error) {
	m, fd, err := readMessage(conn)
	if err != nil {
		return nil, err
	}
	defer closeFD(fd)
	if m.kind != msgHello || m.a != regionVersion {
		return nil, fmt.Errorf("hello of version %d instead of %d", m.a, regionVersion)
	}
	p := &peer{n: n, id: fabric.NodeID(m.b), conn: conn, imports: map[uint32]*imported{}, more: make(chan struct{}, 1)}
	if p.id == n.id || want != fabric.NodeAny && p.id != want {
		return nil, fmt.Errorf("node %d claims to be node %d", want, p.id)
	}
	if err := n.checkCredentials(conn, p.id); err != nil {
		return nil, err
	}
	p.region.mapping, err = mapPeer(fd, nodeSize, false)
	return p, err
}

// checkCredentials checks that the peer runs as the user who claimed the node ID, according to the
// file system.
func (n *Node) checkCredentials(conn *net.UnixConn, id fabric.NodeID) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || cerr != nil {
		return errors.Join(err, cerr)
	}
	var st unix.Stat_t
	if err := unix.Lstat(n.dir.lockPath(id), &st); err != nil {
		return err
	}
	if st.Uid != cred.Uid {
		return fmt.Errorf("node %d belongs to uid %d, the peer is uid %d", id, st.Uid, cred.Uid)
	}
	return nil
}

// addPeer enters a peer into the tables. A predecessor with the same ID is dead, since it has lost
// its claim, but we may not have noticed that yet.
func (n *Node) addPeer(p *peer) error {
	for end := time.Now().Add(handshakePatience); ; time.Sleep(time.Millisecond) {
		n.mu.Lock()
		switch {
		case n.closed:
			n.mu.Unlock()
			return fabric.ErrClosed
		case n.peers[p.id] == nil:
			n.peers[p.id] = p
			n.peersChanged()
			n.events.add(fabric.Event{Node: p.id, Joined: true})
			n.mu.Unlock()
			return nil
		}
		n.mu.Unlock()
		if time.Now().After(end) {
			return fabric.ErrInUse
		}
	}
}
