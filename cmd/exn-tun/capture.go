package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"exnet/exn/capture"
	"exnet/exn/control"
	"exnet/fabric"
)

// captureQuestion is the command of the control protocol that asks for frames. Its
// arguments are capture.Options; the stream follows an empty reply.
const captureQuestion = "capture"

// captureCommand shows the frames of an interface, or writes them to a file.
type captureCommand struct {
	Fabric string         `help:"The fabric directory (default: EXN_FABRIC, else /run/exn for root)." placeholder:"DIR"`
	Node   *fabric.NodeID `help:"Capture at this node (default: the only one of this fabric that has a daemon here)." placeholder:"N"`
	Name   string         `help:"Capture at the interface of this name." placeholder:"NAME"`
	Write  string         `short:"w" help:"Write pcapng to this file instead of printing lines. - is standard output." placeholder:"FILE.pcapng"`
	Count  int            `short:"c" help:"Stop after this many frames." placeholder:"N"`
	Snap   int            `short:"s" help:"Keep this many bytes of each frame (default: all)." placeholder:"N"`
	Filter []string       `arg:"" optional:"" help:"Capture only frames that match this filter (default: all)."`
}

// Help is shown by exn-tun help capture.
func (*captureCommand) Help() string {
	return `Prints one line for each frame until Ctrl-C. tcpdump -i exn0 shows the same packets, but not how they crossed the
fabric. That stands at the end of each line, and in the file in the comment of the packet: the direction and the nodes;
eager (sent in VELO messages) or rendezvous (fetched by an RMA GET); and for a packet with offloads, how it is still to be
cut (gso) and where its checksum is missing (csum).

	exn-tun capture -w - | tshark -r - -Y 'frame.comment contains "rendezvous"'

A filter is made of these words, joined by and, or, not and parentheses. Quote parentheses for the shell.

	host ADDR, net PREFIX, port N     from or to it
	node N                            from or to a node of the fabric
	arp ip ip6 tcp udp icmp icmp6     the protocol
	in out                            received, sent
	eager rendezvous multicast        how it crossed the fabric

	exn-tun capture node 3 and not port 22`
}

// Validate implements kong's check.
func (c *captureCommand) Validate() error {
	if c.Count < 0 {
		return fmt.Errorf("--count %d: cannot be negative", c.Count)
	}
	return c.options().Check()
}

func (c *captureCommand) options() capture.Options {
	return capture.Options{Filter: strings.Join(c.Filter, " "), Snap: c.Snap}
}

// Run captures until interrupted, or until the daemon ends.
func (c *captureCommand) Run(out output, errs messages) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // the second signal is not waited for
	chosen := showCommand{Fabric: c.Fabric, Node: c.Node, Name: c.Name}
	s, err := chosen.state(ctx)
	if err != nil {
		return err
	}
	stream, err := control.Ask(ctx, chosen.dir(), s.Interface.Node, captureQuestion, c.options(), nil)
	if err != nil {
		return err
	}
	defer stream.Close()
	file := io.Writer(out)
	if c.Write != "" && c.Write != "-" {
		f, err := os.Create(c.Write)
		if err != nil {
			return unwritten(err)
		}
		defer f.Close()
		file = output{f}
	}
	frames, dropped, r := 0, uint64(0), capture.NewReader(stream)
	if err = r.Begun(); err == nil {
		fmt.Fprintf(errs, "exn-tun: capturing on %s, node %d of %s\n", s.Link.Name, s.Interface.Node, chosen.dir())
		frames, dropped, err = c.copy(bufio.NewWriterSize(file, 256<<10), r)
	}
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		err = nil // nobody reads any more, or the rest did not come after the interrupt
	}
	if err == nil {
		fmt.Fprintf(errs, "exn-tun: %d frames captured, %d dropped by the capture\n", frames, dropped)
	}
	return err
}

// copy writes what comes, whole blocks only, and without delay.
func (c *captureCommand) copy(w *bufio.Writer, r *capture.Reader) (frames int, dropped uint64, err error) {
	for c.Count == 0 || frames < c.Count {
		if r.Waits() {
			if err := w.Flush(); err != nil {
				return frames, dropped, err
			}
		}
		b, err := r.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return frames, dropped, errors.Join(err, w.Flush())
		}
		dropped = max(dropped, b.Dropped)
		if c.Write != "" {
			_, err = w.Write(b.Raw)
		} else if b.Frame != nil {
			_, err = fmt.Fprintln(w, b.Frame.Line())
		}
		if b.Frame != nil {
			frames++
		}
		if err != nil {
			return frames, dropped, err
		}
	}
	return frames, dropped, w.Flush()
}
