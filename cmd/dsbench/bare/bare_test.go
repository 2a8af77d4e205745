package bare

import (
	"errors"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A duet is both halves of a contender in this process.
type duet struct {
	site         *measure.Site
	lead, follow measure.Half
}

func newDuet(t *testing.T, contender string, p measure.Params) *duet {
	t.Helper()
	d := &duet{site: &measure.Site{Shared: make([]byte, 1<<20)}}
	for _, bell := range []*int{&d.site.LeadBell, &d.site.FollowBell} {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		*bell = fd
	}
	make := Contenders()[contender]
	var err error
	if d.lead, err = make(measure.Lead, d.site, p); err != nil {
		t.Fatal(err)
	}
	if d.follow, err = make(measure.Follow, d.site, p); err != nil {
		t.Fatal(err)
	}
	return d
}

// run runs both halves. The first error stops the other half.
func (d *duet) run(n int) (lead measure.Sample, err error) {
	followed := make(chan error, 1)
	go func() {
		_, err := d.follow.Run(n)
		if err != nil && !d.site.Stopped() {
			d.site.Stop()
		}
		followed <- err
	}()
	lead, err = d.lead.Run(n)
	if err != nil && !d.site.Stopped() {
		d.site.Stop()
	}
	if ferr := <-followed; err == nil || errors.Is(err, measure.ErrStopped) {
		err = ferr
	}
	return lead, err
}

var all = []struct {
	contender string
	params    measure.Params
}{
	{"bare/ping", measure.Params{}},
	{"bare/ring", measure.Params{}},
	{"bare/put", measure.Params{Size: 4096, Buffers: 4}},
	{"bare/get", measure.Params{Size: 4096, Buffers: 4}},
	{"bare/read", measure.Params{Size: 4096, Buffers: 4}},
	{"bare/put", measure.Params{Size: 16, Buffers: 1}},
	{"bare/wake", measure.Params{}},
	{"bare/wake", measure.Params{Pause: time.Microsecond}},
}

func TestEveryReferenceRunsAgainAndAgain(t *testing.T) {
	for _, c := range all {
		d := newDuet(t, c.contender, c.params)
		for _, n := range []int{1, 3, 2 * ringSlots, 5} { // beyond the end of the ring and back
			s, err := d.run(n)
			if err != nil || s.PerOp <= 0 {
				t.Errorf("%s, %d operations: %v ns, %v", c.contender, n, s.PerOp, err)
			}
		}
	}
}

func TestEveryReferenceStops(t *testing.T) {
	for _, c := range all {
		for _, role := range []measure.Role{measure.Lead, measure.Follow} {
			d := newDuet(t, c.contender, c.params)
			h := map[measure.Role]measure.Half{measure.Lead: d.lead, measure.Follow: d.follow}[role]
			done := make(chan error)
			go func() { _, err := h.Run(100); done <- err }()
			d.site.Stop()
			if err := <-done; !errors.Is(err, measure.ErrStopped) {
				t.Errorf("%s: %s without the other half: %v", c.contender, role, err)
			}
		}
	}
}

// Wrong bytes fail the run: the last buffer's turn is prepared with rubbish
// where only the writer may write.
func TestWrongBytesFailTheRun(t *testing.T) {
	for _, contender := range []string{"bare/put", "bare/get", "bare/read"} {
		d := newDuet(t, contender, measure.Params{Size: 4096, Buffers: 2})
		source := copyStart + 2*4096 + 100 // in the middle of the writer's first source
		d.site.Shared[source] ^= 1
		if _, err := d.run(1); err == nil || !strings.Contains(err.Error(), "wrong data") {
			t.Errorf("%s: got %v", contender, err)
		}
	}
}

func TestLostAndForgedMessagesFailTheRun(t *testing.T) {
	d := newDuet(t, "bare/ring", measure.Params{})
	d.lead.(*ring).next = 1 // message 0 is lost; slot 0 stays as another one left it
	s := &d.follow.(*ring).slots[0]
	s.payload[0] = 77
	s.status.Store(parity(0) | 8)
	if _, err := d.run(1); err == nil || !strings.Contains(err.Error(), "message 77 came where 0 was due") {
		t.Errorf("got %v", err)
	}
	d = newDuet(t, "bare/wake", measure.Params{})
	if _, err := unix.Write(d.site.FollowBell, []byte{2, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.run(1); err == nil || !strings.Contains(err.Error(), "3 rings came") && !strings.Contains(err.Error(), "2 rings came") {
		t.Errorf("got %v", err)
	}
}

func TestTooMuchMemoryIsRefused(t *testing.T) {
	site := &measure.Site{Shared: make([]byte, 1<<20)}
	if _, err := newPut(measure.Lead, site, measure.Params{Size: 1 << 20, Buffers: 4}); err == nil {
		t.Error("buffers beyond the shared memory were accepted")
	}
	if _, err := newPut(measure.Lead, site, measure.Params{Size: 12, Buffers: 4}); err == nil {
		t.Error("an odd size was accepted")
	}
}
