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

// A Node is a program on a fabric with a network stack of its own: it needs no TUN
// and no root, and talks to other nodes and to kernels behind exn0.
//
//	at, err := shm.Attach(shm.Config{})
//	node, err := exn.Join(ctx, at, exn.NodeConfig{Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.9/24")}})
//	defer node.Close()
//	conn, err := node.Dial("tcp", "10.2.0.8:80")
//
// Its sockets behave as those of package net, down to their errors: *net.OpError
// with a syscall.Errno, net.ErrClosed, os.ErrDeadlineExceeded. It answers pings.
// All methods are safe for concurrent use.
type Node struct {
	net  *netstack
	once sync.Once
	err  error
}

// Join joins a fabric. It returns when the addresses are claimed, which takes
// half a second; an address that another node has is an error that is EADDRINUSE.
// The attachment belongs to the node from then on, which closes it, also after an error.
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

// lingering bounds how long Close waits for closed connections to deliver what was
// written to them. A kernel has the time after the program ended; a Node has not.
const lingering = time.Second

// Close leaves the fabric. Data of connections that were closed before is delivered
// first, if that takes no longer than a second; those still open are reset.
func (n *Node) Close() error {
	n.once.Do(func() {
		for end := time.Now().Add(lingering); n.delivering() && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
		n.err = n.net.end()
	})
	return n.err
}

// delivering says whether a connection that the program has closed has a peer that
// does not know everything yet.
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

// JoinGroup receives what is sent to a multicast group, on sockets bound to the
// group or to no address.
func (n *Node) JoinGroup(group netip.Addr) error {
	if err := n.net.JoinGroup(protocolOf(group), n.net.ports[0].nic, addressOf(group)); err != nil {
		return fmt.Errorf("exn: join group %v: %w", group, errnoOf(err))
	}
	return nil
}

// LeaveGroup ends JoinGroup.
func (n *Node) LeaveGroup(group netip.Addr) error {
	if err := n.net.LeaveGroup(protocolOf(group), n.net.ports[0].nic, addressOf(group)); err != nil {
		return fmt.Errorf("exn: leave group %v: %w", group, errnoOf(err))
	}
	return nil
}

// Statistics returns the counters of the node's end of EXT-Eth.
func (n *Node) Statistics() *exteth.Statistics { return n.net.ports[0].link.Statistics() }
