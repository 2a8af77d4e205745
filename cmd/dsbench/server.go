package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"exnet/cmd/dsbench/measure"
)

// serverCommand is `dsbench server`.
type serverCommand struct {
	Bind string `placeholder:"ADDRESS" help:"Listen on this address only (default: all addresses)."`
	Port int    `short:"p" default:"5210" placeholder:"N" help:"Listen on this port (default: 5210)."`
	Data int    `placeholder:"N" help:"Receive the measured data on this port, which a firewall can then let through (default: any free port)."`
	Once bool   `short:"1" help:"Exit after one client."`
	fabricFlag
}

// Help is the long text of --help.
func (*serverCommand) Help() string {
	return "Serves one client at a time until Ctrl-C or SIGTERM, and tells other clients that it is busy. It needs no root. Anyone who can reach its port can make it send and receive as fast as it can, but nothing else. " +
		"A client with --ds gets connections of EXT-DS, which move to shared memory if both use the same fabric directory.\n\n" + exitHelp
}

// Run serves.
func (c *serverCommand) Run(in *invocation) error {
	if c.Port < 0 || c.Port > 65535 || c.Data < 0 || c.Data > 65535 || c.Data != 0 && c.Data == c.Port {
		return usageError{fmt.Errorf("--port %d --data %d: choose two different ports from 1 to 65535", c.Port, c.Data)}
	}
	ctx, stop := interruptible()
	defer stop()
	l, err := net.Listen("tcp", net.JoinHostPort(c.Bind, strconv.Itoa(c.Port)))
	if err != nil {
		return fmt.Errorf("%w; choose another port by --port", err)
	}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	fmt.Fprintf(in.stdout, "dsbench server: listening on %v\n", l.Addr())

	var sessions sync.WaitGroup
	defer sessions.Wait()
	defer l.Close()
	slot := make(chan struct{}, 1) // for who is served
	for {
		control, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil // it was told to end
			}
			return fmt.Errorf("accept a client: %w", err)
		}
		if c.Once {
			l.Close()
		}
		session := func() {
			select {
			case slot <- struct{}{}:
			case <-time.After(grace):
				control.SetDeadline(time.Now().Add(grace)) // a client says at once what it wants
				_ = measure.Refuse(control, "the server is busy with another client: try again later")
				return
			}
			defer func() { <-slot }()
			if err := serveSession(ctx, control, c.Data, c.Fabric); err != nil && ctx.Err() == nil {
				fmt.Fprintf(in.stderr, "dsbench server: %v: %v\n", control.RemoteAddr(), err)
			}
		}
		if c.Once {
			session()
			return nil
		}
		sessions.Go(session)
	}
}

// grace is how long a client waits for the one before it to be gone: that one may have
// ended and the server not know yet.
const grace = time.Second

func serveSession(ctx context.Context, control net.Conn, dataPort int, fabric string) error {
	defer control.Close()
	if err := keepAlive(control); err != nil {
		return err
	}
	contenders, err := sessionContenders(measure.Follow, control, dataPort, fabric)
	if err != nil {
		return err
	}
	return measure.ServeRemote(ctx, control, contenders)
}

// keepAlive makes a connection end within some ten seconds when the other host is gone.
func keepAlive(c net.Conn) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return errors.New("not a TCP connection")
	}
	return tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: 4 * time.Second, Interval: 2 * time.Second, Count: 3})
}
