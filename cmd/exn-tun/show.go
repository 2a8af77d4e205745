package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"exnet/exn/control"
	"exnet/fabric"
	"exnet/fabric/shm"
)

// showCommand looks; it changes nothing. Its flags say whose state is looked at, and
// how often.
type showCommand struct {
	Fabric string         `help:"The fabric directory (default: EXN_FABRIC, else /run/exn for root, else exn in XDG_RUNTIME_DIR)." placeholder:"DIR"`
	Node   *fabric.NodeID `help:"The node to show (default: the only one of this fabric that has a daemon here)." placeholder:"N"`
	Name   string         `help:"Show the node whose interface has this name." placeholder:"NAME"`
	JSON   bool           `name:"json" help:"Print one JSON object."`
	Watch  bool           `help:"Print again each second, until Ctrl-C (as watch -n 1)."`

	Interface  showInterfaceCommand  `cmd:"" default:"withargs" help:"Print the interface and its statistics (as ip -s link, in the layout of ifconfig)."`
	Nodes      showNodesCommand      `cmd:"" help:"List the nodes of the fabric, and what this node knows of each."`
	Neighbours showNeighboursCommand `cmd:"" help:"List the neighbours (as ip neigh)."`
	Groups     showGroupsCommand     `cmd:"" help:"List the multicast groups joined (as ip maddr)."`
	Counters   showCountersCommand   `cmd:"" help:"List the counters that are not zero (as ethtool -S)."`
	NAPI       showNAPICommand       `cmd:"" name:"napi" help:"Print how packets are received: settings (as ethtool -c), polls and interrupts."`
	Sockets    showSocketsCommand    `cmd:"" help:"List the TCP sockets of programs under exn-tun run, and say why some stay on TCP (as ss -tnp)."`
}

func (c *showCommand) dir() string {
	if c.Fabric == "" {
		return shm.DefaultDir()
	}
	return c.Fabric
}

// state asks the daemon that the flags choose.
func (c *showCommand) state(ctx context.Context) (state, error) {
	if _, err := shm.List(c.dir()); err != nil {
		return state{}, err // which says what is wrong with the directory
	}
	nodes := []fabric.NodeID{}
	if c.Node != nil {
		nodes = append(nodes, *c.Node)
	} else {
		var err error
		if nodes, err = control.Nodes(c.dir()); err != nil {
			return state{}, err
		}
	}
	var found []state
	for _, n := range nodes {
		s, err := ask(ctx, c.dir(), n)
		if errors.Is(err, control.ErrNobody) && c.Node == nil {
			continue // killed, and not up again yet
		}
		if err != nil {
			return state{}, err
		}
		if c.Name == "" || c.Name == s.Link.Name {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		var names []string
		for _, s := range found {
			names = append(names, fmt.Sprintf("%d (%s)", s.Interface.Node, s.Link.Name))
		}
		return state{}, fmt.Errorf("there are several interfaces on %s; choose one by --node: %s", c.dir(), strings.Join(names, ", "))
	case c.Name != "" || c.Node != nil:
		return state{}, fmt.Errorf("%w for the interface %q on %s; exn-tun show nodes lists who is there", control.ErrNobody, c.Name, c.dir())
	}
	return state{}, fmt.Errorf("%w on %s; start one with exn-tun up", control.ErrNobody, c.dir())
}

// ask asks one daemon.
func ask(ctx context.Context, dir string, node fabric.NodeID) (s state, err error) {
	answer, err := control.Ask(ctx, dir, node, stateQuestion, nil, &s)
	if err == nil {
		answer.Close()
	}
	return s, err
}

// look prints what of a state show prints, once or again and again. pick chooses
// the part of it that is printed as JSON.
func (c *showCommand) look(out output, pick func(*state) any, show func(io.Writer, *state)) error {
	return c.repeat(out, func(ctx context.Context, w io.Writer) error {
		s, err := c.state(ctx)
		if err != nil {
			return err
		}
		if c.JSON {
			return json.NewEncoder(w).Encode(pick(&s))
		}
		show(w, &s)
		return nil
	})
}

// repeat prints once, or each second until interrupted. What is printed is put
// together first, so that a terminal does not flicker.
func (c *showCommand) repeat(out output, once func(context.Context, io.Writer) error) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	for again := false; ; again = true {
		var page bytes.Buffer
		err := once(ctx, &page)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		before := ""
		switch {
		case c.Watch && isTerminal(out.Writer):
			before = "\x1b[H\x1b[2J"
		case again && !c.JSON:
			before = "\n"
		}
		if _, err := io.WriteString(out, before+page.String()); err != nil {
			return err
		}
		if !c.Watch {
			return nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil
		}
	}
}

// isTerminal says whether somebody looks at what is written.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetTermios(int(f.Fd()), unix.TCGETS)
	return err == nil
}
