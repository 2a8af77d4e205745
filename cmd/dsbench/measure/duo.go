package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// PeerCommand is the hidden command of this program that calls Serve,
	// followed by the role and the CPU, if it is to be a certain one.
	PeerCommand = "peer"

	// SharedSize is the length of Site.Shared: enough for two rings of
	// buffers of the longest RMA operations. Only what is touched is used.
	SharedSize = 64 << 20

	// patience is how long the peers may say nothing. The longest run is the
	// ten seconds of the idle test, but a busy machine stretches the others
	// far; peers that miss each other spin or sleep for ever.
	patience = 3 * time.Minute

	// goodbye is how long a peer may take to leave before it is killed.
	goodbye = 2 * time.Second
)

// A Duo is a pair of peer processes. It is used by one goroutine.
type Duo struct {
	lead, follow *peer
	said         chan saying
	closed       chan struct{}
	close        sync.Once
	entries      int

	// Patience is how long the peers may say nothing.
	Patience time.Duration

	// Lead is what lead has done so far, nil where that is another process.
	Lead *Meter
}

// An Entry is a contender that a Duo has prepared.
type Entry struct {
	duo *Duo
	id  int
}

// A saying is an answer of a peer, or how it ended.
type saying struct {
	from *peer
	answer
	err error
}

// A peer is a process, as the coordinator sees it.
type peer struct {
	role    Role
	control io.ReadWriteCloser
	enc     *json.Encoder
	pid     int
	kill    func()
	ended   chan struct{} // closed when the process is gone
	how     string        // then: how it ended
	far     bool          // it is at the other end of a connection
}

// Start starts the two peers on their processors, or on AnyCPU.
func Start(leadCPU, followCPU int) (*Duo, error) {
	shared, err := sharedMemory(SharedSize)
	if err != nil {
		return nil, err
	}
	defer shared.Close()
	inherit := []*os.File{shared}
	for range 2 {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			return nil, fmt.Errorf("measure: create an eventfd: %w", err)
		}
		bell := os.NewFile(uintptr(fd), "bell")
		defer bell.Close()
		inherit = append(inherit, bell)
	}

	lead, err := startPeer(Lead, leadCPU, inherit)
	if err != nil {
		return nil, err
	}
	follow, err := startPeer(Follow, followCPU, inherit)
	if err != nil {
		lead.end()
		return nil, err
	}
	return newDuo(lead, follow), nil
}

func newDuo(lead, follow *peer) *Duo {
	d := &Duo{lead: lead, follow: follow, said: make(chan saying), closed: make(chan struct{}), Patience: patience}
	for _, p := range []*peer{lead, follow} {
		go d.listen(p)
	}
	return d
}

// Close ends both processes and returns when they are gone.
func (d *Duo) Close() {
	d.close.Do(func() {
		close(d.closed)
		d.lead.control.Close() // both at once: neither waits for the other in vain
		d.follow.end()
		d.lead.end()
	})
}

// Processes are those of the two peers.
func (d *Duo) Processes() []int { return []int{d.lead.pid, d.follow.pid} }

// Prepare makes the halves of a contender, lead's first so that what they are
// given by others is the same each time, and brings them together.
func (d *Duo) Prepare(ctx context.Context, contender string, p Params) (*Entry, error) {
	e := &Entry{d, d.entries}
	d.entries++
	peers := []*peer{d.lead, d.follow}
	var words [2][]uint64
	for i, to := range peers {
		a, err := d.ask(ctx, to, order{Do: "prepare", Version: version, Contender: contender, Params: p})
		if err != nil {
			return nil, fmt.Errorf("prepare %s: %w", contender, err)
		}
		words[i] = a.Words
	}
	for i, to := range peers {
		if _, err := d.ask(ctx, to, order{Do: "meet", Entry: e.id, Words: words[1-i]}); err != nil {
			return nil, fmt.Errorf("prepare %s: %w", contender, err)
		}
	}
	return e, nil
}

// Run runs n operations. After an error the Duo is good for nothing but Close.
func (e *Entry) Run(ctx context.Context, n int) (Result, error) {
	d, o := e.duo, order{Do: "run", Entry: e.id, N: n}
	if _, err := d.ask(ctx, d.follow, o); err != nil { // it is running now
		return Result{}, err
	}
	if err := d.lead.tell(o); err != nil {
		return Result{}, err
	}
	r := Result{N: n}
	for range 2 {
		s, err := d.hear(ctx, o.Do)
		if err != nil {
			return Result{}, err
		}
		if s.Sample == nil {
			return Result{}, fmt.Errorf("measure: the %s process answered without a sample", s.from.role)
		}
		if s.from == d.lead {
			r.Lead = *s.Sample
		} else {
			r.Follow = *s.Sample
		}
	}
	return r, nil
}

// ask gives a peer an order and waits for its answer, or that it runs.
func (d *Duo) ask(ctx context.Context, p *peer, o order) (answer, error) {
	if err := p.tell(o); err != nil {
		return answer{}, err
	}
	s, err := d.hear(ctx, o.Do)
	return s.answer, err
}

// hear waits for what one of the peers says next.
func (d *Duo) hear(ctx context.Context, about string) (saying, error) {
	late := time.NewTimer(d.Patience)
	defer late.Stop()
	select {
	case s := <-d.said:
		return s, s.err
	case <-ctx.Done():
		return saying{}, context.Cause(ctx)
	case <-late.C:
		return saying{}, fmt.Errorf("measure: no answer to %q within %v: the processes wait for each other in vain", about, d.Patience)
	}
}

// listen passes on what the peer says until it ends or the Duo is closed.
func (d *Duo) listen(p *peer) {
	for dec := json.NewDecoder(p.control); ; {
		s := saying{from: p}
		if err := dec.Decode(&s.answer); err != nil {
			s.err = p.death()
		} else if s.Error != "" {
			s.err = fmt.Errorf("%s process: %s", p.role, s.Error)
		}
		select {
		case d.said <- s:
		case <-d.closed:
			return
		}
		if s.err != nil {
			return
		}
	}
}

// startPeer starts this program again as a peer.
func startPeer(role Role, cpu int, inherit []*os.File) (*peer, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("measure: create a control socket: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer theirs.Close()

	stderr := &head{}
	args := []string{PeerCommand, string(role)}
	if cpu != AnyCPU {
		args = append(args, strconv.Itoa(cpu))
	}
	cmd := exec.Command("/proc/self/exe", args...)
	cmd.ExtraFiles = append([]*os.File{theirs}, inherit...)
	cmd.Stderr = stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	p := &peer{role: role, control: ours, ended: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The death signal is sent when the thread that started the process
		// ends, so this one stays as long as the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		cmd.Wait() // how it ended is in ProcessState
		p.how = fmt.Sprintf("pid %d: %s%s", cmd.Process.Pid, cmd.ProcessState, stderr)
		close(p.ended)
	}()
	if err := <-started; err != nil {
		ours.Close()
		return nil, fmt.Errorf("measure: start the %s process: %w", role, err)
	}
	p.enc, p.pid, p.kill = json.NewEncoder(ours), cmd.Process.Pid, func() { cmd.Process.Kill() }
	return p, nil
}

func (p *peer) tell(o order) error {
	if p.enc.Encode(o) != nil {
		return p.death()
	}
	return nil
}

// death says how the peer ended, after it closed its control socket.
func (p *peer) death() error {
	select {
	case <-p.ended:
		if p.far {
			return errors.New(p.how)
		}
		return fmt.Errorf("measure: the %s process died (%s)", p.role, p.how)
	case <-time.After(goodbye):
		return fmt.Errorf("measure: the %s process hung up", p.role)
	}
}

// end makes the peer leave and returns when it is gone.
func (p *peer) end() {
	p.control.Close()
	select {
	case <-p.ended:
	case <-time.After(goodbye):
		p.kill()
		<-p.ended
	}
}

// A head keeps the beginning of what is written to it: the message of a crash.
type head struct{ b []byte }

const headSize = 1024

func (h *head) Write(b []byte) (int, error) {
	h.b = append(h.b, b[:min(len(b), headSize-len(h.b))]...)
	return len(b), nil
}

func (h *head) String() string {
	if s := bytes.TrimSpace(h.b); len(s) > 0 {
		return "; it said: " + string(s)
	}
	return ""
}
