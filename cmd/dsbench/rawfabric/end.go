package rawfabric

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
)

// Attach makes a node in a fabric directory.
type Attach func(dir string) (fabric.Node, error)

// Contenders are the subjects on a backend; their names begin with path.
func Contenders(path string, attach Attach) map[string]measure.Contender {
	m := map[string]measure.Contender{}
	for name, make := range map[string]func(*end, measure.Params) (measure.Half, error){
		"velo-ping":  newVELOPing,
		"velo-sleep": newVELOSleep,
		"velo-rate":  newVELORate,
		"put":        newPut,
		"get":        newGet,
		"read":       newRead,
		"idle":       newIdle,
		"memory":     newMemory,
		"window":     newWindow,
	} {
		m[path+"/"+name] = func(role measure.Role, site *measure.Site, p measure.Params) (measure.Half, error) {
			e, err := newEnd(role, site, p.Dir, attach)
			if err != nil {
				return nil, err
			}
			h, err := make(e, p)
			if err != nil {
				e.Close()
				return nil, err
			}
			return h, nil
		}
	}
	return m
}

// An end is one process's attachment: a node with a VELO and an RMA port, both
// raising one interrupt. Halves embed it.
type end struct {
	role measure.Role
	site *measure.Site
	node fabric.Node
	irq  fabric.Interrupt
	velo fabric.VELO
	rma  fabric.RMA

	windows []fabric.Window // told to the other side, in this order
	peer    struct {
		velo, rma fabric.Address
		windows   []fabric.NLA
	}

	imm fabric.RMADescriptor // reused: a descriptor behind an interface escapes
}

func newEnd(role measure.Role, site *measure.Site, dir string, attach Attach) (*end, error) {
	e := &end{role: role, site: site}
	var err error
	if e.node, err = attach(dir); err != nil {
		return nil, fmt.Errorf("attach to the fabric in %s: %w", dir, err)
	}
	if err := e.open(); err != nil {
		e.Close()
		return nil, err
	}
	site.OnStop(e.irq.Wake)
	return e, nil
}

func (e *end) open() (err error) {
	if e.irq, err = e.node.NewInterrupt(); err != nil {
		return fmt.Errorf("make an interrupt: %w", err)
	}
	raise := fabric.PortInterrupts{Receive: e.irq}
	if e.velo, err = e.node.OpenVELO(fabric.VPIDAny, raise); err != nil {
		return fmt.Errorf("open a VELO port: %w", err)
	}
	if e.rma, err = e.node.OpenRMA(fabric.VPIDAny, raise); err != nil {
		return fmt.Errorf("open an RMA port: %w", err)
	}
	return nil
}

// share registers fresh memory of n bytes as the next window. It lives as
// long as the node.
func (e *end) share(n int, r fabric.Rights) (fabric.Memory, fabric.Window, error) {
	m, err := e.node.Alloc(n, r)
	if err != nil {
		return nil, nil, fmt.Errorf("allocate %d bytes: %w", n, err)
	}
	w, err := e.rma.Register(m, fabric.WindowSpec{Rights: r, Length: n})
	if err != nil {
		return nil, nil, fmt.Errorf("register %d bytes: %w", n, err)
	}
	e.windows = append(e.windows, w)
	return m, w, nil
}

// Words are the addresses of the two ports and of the windows.
func (e *end) Words() []uint64 {
	words := []uint64{packAddress(e.velo.Address()), packAddress(e.rma.Address())}
	for _, w := range e.windows {
		words = append(words, uint64(w.NLA()))
	}
	return words
}

// joining is how long a node may take to see one that attached before.
const joining = 5 * time.Second

// Meet waits until the other node is seen.
func (e *end) Meet(words []uint64) error {
	if len(words) < 2 {
		return errors.New("the other half told no address")
	}
	e.peer.velo, e.peer.rma = unpackAddress(words[0]), unpackAddress(words[1])
	for _, w := range words[2:] {
		e.peer.windows = append(e.peer.windows, fabric.NLA(w))
	}
	for deadline := time.Now().Add(joining); !slices.Contains(e.node.Peers(), e.peer.velo.Node); {
		if time.Now().After(deadline) {
			return fmt.Errorf("node %d does not see node %d, which is attached, after %v", e.node.ID(), e.peer.velo.Node, joining)
		}
		time.Sleep(time.Millisecond)
	}
	return nil
}

// Close leaves the fabric, which closes everything else.
func (e *end) Close() error { return e.node.Close() }

func packAddress(a fabric.Address) uint64 { return uint64(a.Node)<<16 | uint64(a.VPID) }

func unpackAddress(w uint64) fabric.Address {
	return fabric.Address{Node: fabric.NodeID(w >> 16), VPID: fabric.VPID(w & 0xffff)}
}

// send sends a message, waiting for room.
func (e *end) send(payload []byte) error {
	d := fabric.VELODescriptor{To: e.peer.velo}
	for {
		err := e.velo.Send(d, payload)
		if err == nil {
			return nil
		}
		if err := e.retry(err); err != nil {
			return fmt.Errorf("VELO send: %w", err)
		}
	}
}

// post starts an RMA operation, waiting for room.
func (e *end) post(d *fabric.RMADescriptor) error {
	for {
		err := e.rma.Post(d)
		if err == nil {
			return nil
		}
		if err := e.retry(err); err != nil {
			return fmt.Errorf("RMA %v: %w", d.Command, err)
		}
	}
}

// set writes one word of the other side's window number i.
func (e *end) set(i int, v uint64, mask fabric.Mask) error {
	e.imm = fabric.RMADescriptor{Command: fabric.ImmediatePut, Mask: mask, To: e.peer.rma,
		Remote: e.peer.windows[i], Data: v, Enable: 0xff}
	return e.post(&e.imm)
}

// retry decides whether to try again after err.
func (e *end) retry(err error) error {
	if !errors.Is(err, fabric.ErrFull) {
		return err
	}
	if e.site.Stopped() {
		return measure.ErrStopped
	}
	return nil
}

// sleep waits for the interrupt unless there is something to poll.
func (e *end) sleep(timeout time.Duration) error {
	if e.irq.Arm() {
		e.irq.Wait(timeout)
	}
	if e.site.Stopped() {
		return measure.ErrStopped
	}
	return nil
}
