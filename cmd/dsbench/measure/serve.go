package measure

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// What a peer process finds open when it starts.
const (
	controlFD = 3 + iota
	sharedFD
	leadBellFD
	followBellFD
)

// An order is what the coordinator sends, an answer what it gets back, both as
// JSON. Every order has one answer, only that follow announces first that it
// is about to run.
// version is that of the orders and of what halves say to each other. The two ends of a
// session may be of different builds: it changes with anything that both have to know.
const version = 1

type order struct {
	Do        string   `json:"do"`
	Version   int      `json:"version,omitempty"` // of prepare
	Entry     int      `json:"entry"`             // which of the prepared halves
	Contender string   `json:"contender,omitempty"`
	Params    Params   `json:"params,omitzero"`
	Words     []uint64 `json:"words,omitempty"`
	N         int      `json:"n,omitempty"`
}

type answer struct {
	Running bool     `json:"running,omitempty"`
	Words   []uint64 `json:"words,omitempty"`
	Sample  *Sample  `json:"sample,omitempty"`
	Error   string   `json:"error,omitempty"`
}

// Serve is the whole life of a peer process: it obeys the coordinator that
// started it until that goes away. Calling it elsewhere gives an error.
func Serve(role Role, cpu int, contenders map[string]Contender) error {
	if role != Lead && role != Follow {
		return fmt.Errorf("measure: no such role: %q", role)
	}
	if typ, err := unix.GetsockoptInt(controlFD, unix.SOL_SOCKET, unix.SO_TYPE); err != nil || typ != unix.SOCK_STREAM {
		return errors.New("measure: a peer is started by dsbench itself, not by hand")
	}
	// These go to the whole process group; the coordinator decides.
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := unix.SetNonblock(controlFD, true); err != nil {
		return fmt.Errorf("measure: set up the control socket: %w", err)
	}
	for fd := controlFD; fd <= followBellFD; fd++ {
		unix.CloseOnExec(fd)
	}
	shared, err := mapShared(sharedFD)
	if err != nil {
		return err
	}
	if err := pin(cpu); err != nil {
		return err
	}
	site := &Site{Shared: shared, LeadBell: leadBellFD, FollowBell: followBellFD}
	return serve(os.NewFile(controlFD, "control"), role, site, contenders)
}

// serve obeys the orders that come by control until it ends.
func serve(control io.ReadWriteCloser, role Role, site *Site, contenders map[string]Contender) error {
	defer control.Close()
	orders := make(chan order, 1) // one at a time is under way
	go func() {
		defer close(orders)
		defer site.Stop() // first, so that a running half returns and orders is looked at again
		for dec := json.NewDecoder(control); ; {
			var o order
			if dec.Decode(&o) != nil {
				return
			}
			orders <- o
		}
	}()

	var halves []Half
	defer func() {
		for _, h := range halves {
			h.Close()
		}
	}()
	enc := json.NewEncoder(control)
	for o := range orders {
		a := answer{}
		var err error
		switch {
		case o.Do == "prepare" && o.Version != version:
			err = fmt.Errorf("the other dsbench speaks version %d of the protocol, this one %d: run the same on both hosts", o.Version, version)
		case o.Do == "prepare":
			c := contenders[o.Contender]
			if c == nil {
				err = fmt.Errorf("measure: no such contender: %q", o.Contender)
				break
			}
			var h Half
			if h, err = c(role, site, o.Params); err == nil {
				halves, a.Words = append(halves, h), h.Words()
			}
		case o.Entry < 0 || o.Entry >= len(halves):
			err = fmt.Errorf("measure: order %q for a half that is not there", o.Do)
		case o.Do == "meet":
			err = halves[o.Entry].Meet(o.Words)
		case o.Do == "run":
			if role == Follow {
				if err := enc.Encode(answer{Running: true}); err != nil {
					return nil // the coordinator is gone
				}
			}
			var s Sample
			if s, err = run(halves[o.Entry], o.N, site.yard); err == nil {
				a.Sample = &s
			}
		default:
			err = fmt.Errorf("measure: no such order: %q", o.Do)
		}
		if err != nil {
			a = answer{Error: err.Error()}
		}
		if err := enc.Encode(a); err != nil {
			return nil // the coordinator is gone
		}
	}
	return nil
}

// run runs a half and adds what the process spent, and what the yardstick says, if there is one.
func run(h Half, n int, yard *Yardstick) (Sample, error) {
	slower := yard.patient()
	runtime.GC() // what was left behind is not to be collected during the run
	var m0, m1 runtime.MemStats
	runtime.ReadMemStats(&m0)
	start, thread, switches := time.Now(), cpuTime(unix.CLOCK_THREAD_CPUTIME_ID), sleeps()
	s, err := h.Run(n)
	s.Switches = sleeps() - switches
	s.OnCPU = cpuTime(unix.CLOCK_THREAD_CPUTIME_ID) - thread
	s.Elapsed = time.Since(start)
	runtime.ReadMemStats(&m1)
	s.Mallocs = m1.Mallocs - m0.Mallocs
	s.Slower = max(slower, yard.patient())
	return s, err
}

// CPUTime is the processor time that this process has used.
func CPUTime() time.Duration { return cpuTime(unix.CLOCK_PROCESS_CPUTIME_ID) }

// cpuTime reads a CPU clock. Those are exact, where getrusage may lag by a tick.
func cpuTime(clock int32) time.Duration {
	var ts unix.Timespec
	unix.ClockGettime(clock, &ts) // cannot fail: the clocks are constants
	return time.Duration(ts.Nano())
}

// sleeps counts how often this thread has gone to sleep.
func sleeps() int64 {
	var ru unix.Rusage
	unix.Getrusage(unix.RUSAGE_THREAD, &ru) // cannot fail: who is a constant
	return ru.Nvcsw
}
