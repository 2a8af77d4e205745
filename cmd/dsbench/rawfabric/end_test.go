package rawfabric

import (
	"errors"
	"os"
	"strings"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/fabric"
	"exnet/fabric/shm"
)

func attachSHM(dir string) (fabric.Node, error) {
	n, err := shm.Attach(shm.Config{Dir: dir, Node: fabric.NodeAny})
	if err != nil {
		return nil, err
	}
	return n, nil
}

// privateDir is a directory that a fabric may be in.
func privateDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A twisted node is a node with something between it and its user. Unset
// functions twist nothing.
type twisted struct {
	fabric.Node
	send func(v fabric.VELO, d fabric.VELODescriptor, payload []byte) error
	post func(n *twisted, r fabric.RMA, d *fabric.RMADescriptor) error
	poll func(notes []fabric.Notification)

	memories []fabric.Memory
	calls    int
}

// twist gives an Attach whose nodes are twisted like t.
func twist(t twisted) Attach {
	return func(dir string) (fabric.Node, error) {
		n, err := attachSHM(dir)
		if err != nil {
			return nil, err
		}
		t := t
		t.Node = n
		return &t, nil
	}
}

func (n *twisted) OpenVELO(v fabric.VPID, irq fabric.PortInterrupts) (fabric.VELO, error) {
	p, err := n.Node.OpenVELO(v, irq)
	return twistedVELO{p, n}, err
}

func (n *twisted) OpenRMA(v fabric.VPID, irq fabric.PortInterrupts) (fabric.RMA, error) {
	p, err := n.Node.OpenRMA(v, irq)
	return twistedRMA{p, n}, err
}

func (n *twisted) Alloc(size int, most fabric.Rights) (fabric.Memory, error) {
	m, err := n.Node.Alloc(size, most)
	n.memories = append(n.memories, m)
	return m, err
}

type twistedVELO struct {
	fabric.VELO
	n *twisted
}

func (v twistedVELO) Send(d fabric.VELODescriptor, payload []byte) error {
	if v.n.send == nil {
		return v.VELO.Send(d, payload)
	}
	return v.n.send(v.VELO, d, payload)
}

// A twistedRMA has no GetInPlace.
type twistedRMA struct {
	fabric.RMA
	n *twisted
}

func (r twistedRMA) Post(d *fabric.RMADescriptor) error {
	if r.n.post == nil {
		return r.RMA.Post(d)
	}
	return r.n.post(r.n, r.RMA, d)
}

func (r twistedRMA) Poll(into []fabric.Notification) int {
	n := r.RMA.Poll(into)
	if r.n.poll != nil {
		r.n.poll(into[:n])
	}
	return n
}

// Twists that the tests use, also in processes of their own.
var (
	slowed = twisted{send: func(v fabric.VELO, d fabric.VELODescriptor, payload []byte) error {
		time.Sleep(time.Millisecond)
		return v.Send(d, payload)
	}}
	wrongMessages = twisted{send: func(v fabric.VELO, d fabric.VELODescriptor, payload []byte) error {
		wrong := append([]byte(nil), payload...)
		wrong[len(wrong)-1] ^= 1
		return v.Send(d, wrong)
	}}
	wrongBuffers = twisted{post: func(n *twisted, r fabric.RMA, d *fabric.RMADescriptor) error {
		if n.calls++; n.calls == 3 {
			for _, m := range n.memories { // the one the operation moves or announces is among them
				m.Bytes()[len(m.Bytes())/2+100] ^= 1
			}
		}
		return r.Post(d)
	}}
	faulty = twisted{poll: func(notes []fabric.Notification) {
		for i := range notes {
			notes[i].Fault = fabric.FaultRights
		}
	}}
	dying = twisted{send: func(fabric.VELO, fabric.VELODescriptor, []byte) error {
		os.Exit(7)
		return nil
	}}
)

// A duet is both halves of a contender in this process.
type duet struct {
	site         *measure.Site
	lead, follow measure.Half
}

func newDuet(t *testing.T, attach Attach, subject string, p measure.Params) *duet {
	t.Helper()
	d := &duet{site: &measure.Site{}}
	p.Dir = privateDir(t)
	make := Contenders("it", attach)["it/"+subject]
	var err error
	if d.lead, err = make(measure.Lead, d.site, p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.lead.Close() })
	if d.follow, err = make(measure.Follow, d.site, p); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.follow.Close() })
	if err := errors.Join(d.lead.Meet(d.follow.Words()), d.follow.Meet(d.lead.Words())); err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs both halves. The first error stops the other half.
func (d *duet) run(n int) (lead, follow measure.Sample, err error) {
	failed := func(err error) {
		if err != nil && !d.site.Stopped() {
			d.site.Stop()
		}
	}
	followed := make(chan error, 1)
	go func() {
		var err error
		follow, err = d.follow.Run(n)
		failed(err)
		followed <- err
	}()
	lead, err = d.lead.Run(n)
	failed(err)
	if ferr := <-followed; err == nil || errors.Is(err, measure.ErrStopped) {
		err = ferr
	}
	return lead, follow, err
}

func TestEverySubjectRunsAgainAndAgain(t *testing.T) {
	for _, c := range []struct {
		subject string
		params  measure.Params
	}{
		{"velo-ping", measure.Params{Size: 8}},
		{"velo-ping", measure.Params{Size: 120}},
		{"velo-sleep", measure.Params{Size: 8}},
		{"velo-sleep", measure.Params{Size: 8, Pause: time.Microsecond}},
		{"velo-rate", measure.Params{}},
		{"put", measure.Params{Size: 4096, Buffers: 4}},
		{"put", measure.Params{Size: 16, Buffers: 1}},
		{"get", measure.Params{Size: 4096, Buffers: 4}},
		{"read", measure.Params{Size: 4096, Buffers: 2}},
	} {
		d := newDuet(t, attachSHM, c.subject, c.params)
		for _, n := range []int{1, 3, 300, 5} {
			if s, _, err := d.run(n); err != nil || s.PerOp <= 0 {
				t.Errorf("%s %+v, %d operations: %v ns, %v", c.subject, c.params, n, s.PerOp, err)
			}
		}
	}
}

func TestIdleExchangesAndWaits(t *testing.T) {
	d := newDuet(t, attachSHM, "idle", measure.Params{})
	if _, _, err := d.run(0); err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	lead, follow, err := d.run(20)
	if err != nil {
		t.Fatal(err)
	}
	if waited := time.Since(start); waited < 20*time.Millisecond {
		t.Errorf("waited %v instead of 20 ms", waited)
	}
	if lead.CPU <= 0 || follow.CPU <= 0 {
		t.Errorf("CPU %v and %v: even waiting takes some", lead.CPU, follow.CPU)
	}
}

func TestEverySubjectStops(t *testing.T) {
	for _, subject := range []string{"velo-ping", "velo-sleep", "velo-rate", "put", "get", "read", "idle", "memory", "window"} {
		for _, role := range []measure.Role{measure.Lead, measure.Follow} {
			p := measure.Params{Size: 4096, Buffers: 2}
			if strings.HasPrefix(subject, "velo") {
				p.Size = 8
			}
			d := newDuet(t, attachSHM, subject, p)
			h := map[measure.Role]measure.Half{measure.Lead: d.lead, measure.Follow: d.follow}[role]
			done := make(chan error)
			// More than any ring holds without the other half. To idle it is
			// more milliseconds than this test may take.
			go func() { _, err := h.Run(1 << 20); done <- err }()
			d.site.Stop()
			if err := <-done; !errors.Is(err, measure.ErrStopped) {
				t.Errorf("%s: %s without the other half: %v", subject, role, err)
			}
		}
	}
}

// Wrong bytes fail the run.
func TestWrongBytesFailTheRun(t *testing.T) {
	for _, c := range []struct {
		subject string
		twist   twisted
		want    string
	}{
		{"velo-ping", wrongMessages, "wrong data: message 1 is numbered 1 at its start and"},
		{"velo-sleep", wrongMessages, "wrong data: message 1 is numbered 1 at its start and"},
		{"velo-rate", wrongMessages, "wrong data: message 1 is numbered"},
		{"put", wrongBuffers, "wrong data: buffer"},
		{"get", wrongBuffers, "wrong data: buffer"},
		{"put", faulty, "fault missing right"},
		{"get", faulty, "fault missing right"},
		{"memory", faulty, "missing right"},
	} {
		p := measure.Params{Size: 64, Buffers: 4}
		if c.twist.post != nil {
			p.Size = 4096
		}
		d := newDuet(t, twist(c.twist), c.subject, p)
		if _, _, err := d.run(10); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v instead of %q", c.subject, err, c.want)
		}
	}
}

// A lost message is a wrong number, a short one a wrong length.
func TestLostAndShortMessagesFailTheRun(t *testing.T) {
	sent := 0
	lossy := twisted{send: func(v fabric.VELO, d fabric.VELODescriptor, payload []byte) error {
		if sent++; sent == 3 {
			return nil
		}
		return v.Send(d, payload)
	}}
	if _, _, err := newDuet(t, twist(lossy), "velo-rate", measure.Params{}).run(10); err == nil || !strings.Contains(err.Error(), "message 3 is numbered 4") {
		t.Errorf("lost: got %v", err)
	}
	short := twisted{send: func(v fabric.VELO, d fabric.VELODescriptor, payload []byte) error {
		return v.Send(d, payload[:len(payload)-1])
	}}
	if _, _, err := newDuet(t, twist(short), "velo-ping", measure.Params{Size: 16}).run(1); err == nil || !strings.Contains(err.Error(), "has 15 bytes instead of 16") {
		t.Errorf("short: got %v", err)
	}
}

func TestImpossibleSubjectsAreRefused(t *testing.T) {
	for _, c := range []struct {
		subject string
		attach  Attach
		params  measure.Params
		want    string
	}{
		{"velo-ping", attachSHM, measure.Params{Size: 4}, "need 8 to 120"},
		{"velo-ping", attachSHM, measure.Params{Size: 121}, "need 8 to 120"},
		{"put", attachSHM, measure.Params{Size: 4}, "need a multiple of 8"},
		{"read", twist(twisted{}), measure.Params{Size: 4096, Buffers: 1}, "no GET in place: leave rma-get-in-place out"},
	} {
		c.params.Dir = privateDir(t)
		h, err := Contenders("it", c.attach)["it/"+c.subject](measure.Lead, &measure.Site{}, c.params)
		if err == nil {
			h.Close()
		}
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %+v: got %v", c.subject, c.params, err)
		}
	}
}
