package capture

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"sync"

	"exnet/exn"
	"exnet/exteth"
	"exnet/fabric"
)

// queueBytes bounds the bytes that wait for the reader: 64 super-packets, or 16 big ones.
const queueBytes = 64 * 68 << 10

// A Source is something whose frames can be captured, such as an *exn.Interface.
type Source interface {
	Capture(f func(*exn.CaptureFrame)) (stop func())
}

// About describes the source; the stream starts with it.
type About struct {
	Program     string // that captures, with its version
	Name        string // of the interface
	Description string
	Node        fabric.NodeID
}

// Options select what is captured.
type Options struct {
	Filter string `json:"filter"`
	Snap   int    `json:"snap"` // how many bytes of each frame are kept; 0: all
}

// Check returns the error that Stream would return because of the options.
func (o Options) Check() error {
	if o.Snap < 0 {
		return fmt.Errorf("capture: %d bytes of a frame: want 0, for all, or more", o.Snap)
	}
	_, err := ParseFilter(o.Filter)
	return err
}

// Stream writes the frames of an interface to w until ctx is done, which is no error, or a write to
// w fails. It writes all frames that crossed before ctx was done, except those for which w was too
// slow; the stream says how many those are.
func Stream(ctx context.Context, w io.Writer, from Source, about About, o Options) error {
	if err := o.Check(); err != nil {
		return err
	}
	filter, err := ParseFilter(o.Filter)
	if err != nil {
		return err
	}
	q := queue{more: make(chan struct{}, 1)}
	self := strconv.Itoa(int(about.Node))
	stop := from.Capture(func(c *exn.CaptureFrame) {
		if filter.Match(c) {
			q.put(c, self, o.Snap)
		}
	})
	defer stop()
	out := appendStart(nil, about, o.Snap)
	told := uint64(0)
	for ended := false; ; {
		if len(out) > 0 {
			if _, err := w.Write(out); err != nil {
				return fmt.Errorf("capture: %w", err)
			}
		}
		if ended {
			return nil
		}
		select {
		case <-q.more:
		case <-ctx.Done():
			stop()
			ended = true
		}
		var dropped uint64
		if out, dropped = q.swap(out[:0]); dropped != told {
			out, told = appendDropped(out, dropped), dropped
		}
	}
}

// A queue connects the tap, which must not wait, with the writer.
type queue struct {
	more chan struct{} // holds a token when there is something to write

	mu      sync.Mutex
	blocks  []byte
	dropped uint64
}

func (q *queue) put(c *exn.CaptureFrame, self string, snap int) {
	q.mu.Lock()
	if len(q.blocks)+len(c.Frame) > queueBytes {
		q.dropped++
	} else {
		q.blocks = appendFrame(q.blocks, c, self, snap)
	}
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// swap exchanges the waiting blocks for an empty buffer.
func (q *queue) swap(empty []byte) (full []byte, dropped uint64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	full, q.blocks = q.blocks, empty
	return full, q.dropped
}

// appendComment appends what the fabric knows of a frame; see the package comment.
func appendComment(b []byte, c *exn.CaptureFrame, self string) []byte {
	peer := strconv.Itoa(int(c.Peer))
	if c.Multicast && c.Sent {
		peer = "group " + strconv.Itoa(int(c.Group))
	}
	if c.Sent {
		b = fmt.Appendf(b, "out %s->%s", self, peer)
	} else if c.Multicast {
		b = fmt.Appendf(b, "in %s->group %d", peer, c.Group)
	} else {
		b = fmt.Appendf(b, "in %s->%s", peer, self)
	}
	if c.Rendezvous {
		b = append(b, " rendezvous RMA"...)
	} else {
		b = append(b, " eager VELO"...)
	}
	if c.VNet.GSO != exteth.GSONone {
		b = fmt.Appendf(b, " gso=%s/%d", gsoNames[c.VNet.GSO&^exteth.GSOECN], c.VNet.GSOSize)
	}
	if c.VNet.Flags&exteth.NeedsChecksum != 0 {
		b = fmt.Appendf(b, " csum=%d+%d", c.VNet.CsumStart, c.VNet.CsumOffset)
	}
	return b
}

var gsoNames = map[exteth.GSOType]string{exteth.GSOTCPv4: "tcp4", exteth.GSOTCPv6: "tcp6", exteth.GSOUDP: "udp"}
