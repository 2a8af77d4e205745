package traffic

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/exn"
	"exnet/fabric"
	"exnet/fabric/shm"
)

// A joined sends a stream from a program that is a node of the fabric itself,
// with a network stack of its own, to a kernel behind exn0.
type joined struct {
	site *measure.Site
	node *exn.Node
	to   netip.Addr
	port uint16
}

// newJoined joins the fabric for lead, whose address is that of Ends. Follow is
// that of a stream.
func newJoined(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
	if role == measure.Follow {
		return newStream(role, site, p)
	}
	at, err := shm.Attach(shm.Config{Dir: p.Dir, Node: fabric.NodeAny})
	if err != nil {
		return nil, fmt.Errorf("traffic: %w", err)
	}
	const bits = 24 // as the daemons have it
	node, err := exn.Join(context.Background(), at, exn.NodeConfig{Addresses: []netip.Prefix{netip.PrefixFrom(p.Ends[0].Addr, bits)}})
	if err != nil {
		return nil, fmt.Errorf("traffic: %w", err)
	}
	return &joined{site: site, node: node, to: p.Ends[1].Addr}, nil
}

// Words has no port to tell.
func (*joined) Words() []uint64 { return []uint64{0} }

// Meet learns the port of follow.
func (j *joined) Meet(words []uint64) error {
	if len(words) != 1 {
		return fmt.Errorf("traffic: the other half says %v instead of its port", words)
	}
	j.port = uint16(words[0])
	return nil
}

// Run sends for n milliseconds.
func (j *joined) Run(n int) (sample measure.Sample, err error) {
	conn, err := j.node.Dial("tcp", net.JoinHostPort(j.to.String(), strconv.Itoa(int(j.port))))
	if err != nil {
		return sample, fmt.Errorf("traffic: %w", err)
	}
	defer conn.Close()
	length := time.Duration(n) * time.Millisecond
	for at, end := 0, time.Now().Add(warmUp(length)+length); time.Now().Before(end); {
		if j.site.Stopped() {
			return sample, measure.ErrStopped
		}
		conn.SetWriteDeadline(time.Now().Add(giveUp))
		k, err := conn.Write(pattern[at : at+block])
		if err != nil {
			return sample, fmt.Errorf("traffic: %w", err)
		}
		at = (at + k) % period
	}
	return sample, nil
}

// Close leaves the fabric.
func (j *joined) Close() error { return j.node.Close() }
