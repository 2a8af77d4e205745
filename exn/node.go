package exn

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"gvisor.dev/gvisor/pkg/tcpip/transport/tcp"

	"exnet/exteth"
	"exnet/fabric"
)

// A Node is a program on a fabric with a network stack of its own. It needs no TUN and no root
// privileges. It talks to other nodes and to kernels behind exn0.
//
//	at, err := shm.Attach(shm.Config{})
//	addresses := []netip.Prefix{netip.MustParsePrefix("10.2.0.9/24")}
//	node, err := exn.Join(ctx, at, exn.NodeConfig{Addresses: addresses})
//	defer node.Close()
//	conn, err := node.Dial("tcp", "10.2.0.8:80")
//
// Its sockets behave like those of package net, down to their errors: *net.OpError with a
// syscall.Errno, net.ErrClosed, os.ErrDeadlineExceeded. The node answers pings. All methods are
// safe for concurrent use.
type Node struct {
	net  *netstack
	once sync.Once
	err  error
}

// Join joins a fabric. It returns when the addresses are claimed, after about half a second. If
// another node has an address, the error is a ConflictError. From then on the node owns the
// attachment and closes it, even after an error.
func Join(ctx context.Context, at fabric.Node, cfg NodeConfig) (*Node, error) {
	if err := cfg.check(); err != nil {
		return nil, errors.Join(err, at.Close())
	}
	s, err := newNetstack(false)
	if err != nil {
		return nil, errors.Join(err, at.Close())
	}
	if err = s.attach(at, cfg); err == nil {
		s.route()
		err = s.settle(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.end())
	}
	return &Node{net: s}, nil
}

// lingering bounds how long Close waits for closed connections to deliver their data. A kernel goes
// on delivering after the program has ended; a Node cannot.
const lingering = time.Second

// Close leaves the fabric. First it lets connections that were closed before deliver their data,
// for at most a second. It resets those still open.
func (n *Node) Close() error {
	n.once.Do(func() {
		for end := time.Now().Add(lingering); n.delivering() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		n.err = n.net.end()
	})
	return n.err
}

// delivering reports whether a connection that the program has closed still has data, or its end,
// to deliver.
func (n *Node) delivering() bool {
	for _, ep := range n.net.RegisteredEndpoints() {
		if c, ok := ep.(*tcp.Endpoint); ok {
			switch c.EndpointState() {
			case tcp.StateFinWait1, tcp.StateLastAck, tcp.StateClosing:
				return true
			}
		}
	}
	return false
}

func (n *Node) ended() bool {
	select {
	case <-n.net.done:
		return true
	default:
		return false
	}
}

// JoinGroup makes sockets that are bound to a multicast group, or to no address, receive datagrams
// for the group.
func (n *Node) JoinGroup(group netip.Addr) error {
	if err := n.net.JoinGroup(protocolOf(group), n.net.ports[0].nic, addressOf(group)); err != nil {
		return fmt.Errorf("exn: join group %v: %w", group, errnoOf(err))
	}
	return nil
}

// LeaveGroup undoes JoinGroup.
func (n *Node) LeaveGroup(group netip.Addr) error {
	if err := n.net.LeaveGroup(protocolOf(group), n.net.ports[0].nic, addressOf(group)); err != nil {
		return fmt.Errorf("exn: leave group %v: %w", group, errnoOf(err))
	}
	return nil
}

// Statistics returns the counters of the node's end of EXT-Eth.
func (n *Node) Statistics() *exteth.Statistics { return n.net.ports[0].link.Statistics() }
