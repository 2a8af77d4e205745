package napi

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Mode selects what an interrupt does (DRV-2).
type Mode uint8

const (
	NAPI            Mode = iota // an interrupt starts polling
	InterruptDriven             // an interrupt is handled immediately
)

func (m Mode) String() string {
	switch m {
	case NAPI:
		return "NAPI"
	case InterruptDriven:
		return "interrupt"
	}
	return fmt.Sprintf("Mode(%d)", uint8(m))
}

const (
	// DefaultBusyPoll is the recommended window for a loop on a thread of its own. It has to
	// exceed the latency of a wake-up (about 20 µs between two cores). Otherwise both ends fall
	// into a rhythm of sleeping and waking that they never leave. 100 µs gained nothing over
	// 50.
	DefaultBusyPoll = 50 * time.Microsecond

	// DefaultSlice is how long the loop works before it asks for a yield: a few packets. The
	// programs that send and receive these packets may share its CPU. A loop that works until
	// nothing is left lets them send and receive everything at once that the protocol allows to
	// be under way, and then one CPU waits for the other. One TCP stream was measured at 56
	// Gbit/s with slices of 5 to 100 µs, and at 44 with 200 and more.
	DefaultSlice = 20 * time.Microsecond

	// While such yields give others more time than the loop has itself, it works for fairSlice
	// in between. Linux's softirq steps back after the same time (netdev_budget_usecs). maxLent
	// bounds how long the account remembers.
	fairSlice = 2 * time.Millisecond
	maxLent   = 10 * time.Millisecond

	// In bulk, a yield that returns at once, because nobody else wants the CPU, is followed by
	// a rest. Receivers have data in buffers and as much is under way, so nobody misses the
	// loop for restTime. Polling instead took up to a sixth of the daemons' CPU time for one
	// TCP stream. The interrupts stay masked for restWindows of the busy-poll window: the
	// scheduler often moves a thread to the CPU that wakes it, away from the program that it
	// shares its data with.
	restTime    = 40 * time.Microsecond
	restWindows = 8
	atOnce      = 4 * time.Microsecond

	// Bulk means bulkBytes in the sum of all sources, of which half is forgotten after each
	// bulkTime: some 8 Gbit/s.
	bulkBytes = 2 << 20
	bulkTime  = time.Millisecond

	// A window above longWindow says that the loop should go on polling, so it never rests.
	longWindow = time.Millisecond

	// The protocol does not pace bulk that comes in bursts ([Result].Yield). Its sender makes
	// packets for as long as it has the CPU, some 3 ms, and then its daemon passes them on. If
	// another CPU were idle meanwhile, the scheduler would move one of the two there, away from
	// the other. So the receiving loop goes on polling for burstWindow (measured: 31 Gbit/s of
	// UDP instead of 21).
	burstWindow = 5 * time.Millisecond

	// A yield that took longLoss is called a loss. Another thread wants the CPU, and the
	// scheduler may let a yielding thread wait for milliseconds (seen on Linux 6.18.44), while
	// a sleeping one is back when its interrupt comes. So the loop sleeps instead for a time.
	// It starts with firstHold, since even a quiet machine has a loss or two in a second. It
	// doubles each time that a loss follows soon, up to lossHold, beside which one such yield
	// costs little.
	longLoss  = time.Millisecond
	firstHold = 2 * time.Millisecond
	lossHold  = 100 * time.Millisecond
)

// A Clock returns the monotonic time since an origin of its choice.
type Clock func() time.Duration

// Config configures an Engine. The zero value is NAPI mode without busy polling.
type Config struct {
	Mode Mode
	// how long to poll after the last work; NAPI mode only; see DefaultBusyPoll
	BusyPoll time.Duration
	Slice    time.Duration // how long to work before a yield; NAPI mode only; 0 means DefaultSlice
	Clock    Clock         // nil means the real clock
}

// Engine polls a set of sources. See the package comment.
type Engine struct {
	mode    Mode
	slice   time.Duration
	clock   Clock
	window  atomic.Int64 // a time.Duration
	stats   counters
	running atomic.Bool
	stopped atomic.Bool // the context of Run is done

	// The fields below belong to the loop.
	sources []*Source
	list    pollList
	armed   int // sources in state armed
	blocked int // sources that are blocked

	polled          bool          // a source was polled in this Turn
	worked          bool          // a source had work in this Turn
	looked          uint64        // counts work and pauses; see Source.empty
	paused          bool          // the last Turn asked for a pause
	lastWork        time.Duration // end of the last round that had work
	resumed         time.Duration // end of the last pause
	idled           bool          // the last Turn found nothing and asked for a yield
	rested          bool          // the last Turn found nothing and asked for a rest
	gave            bool          // the last Turn asked for a yield after a slice of work
	asked           bool          // a poll since the last pause wants a yield
	burst           time.Duration // the last time that a poll wanted one
	lent            time.Duration // time that such yields took, less the loop's own before them
	turned          time.Duration // start of the last Turn
	overloadedUntil time.Duration // no busy polling until this time, after a loss
	hold            time.Duration // how long that takes
	moved           int64         // bytes since the last Turn
	flow            int64         // recent bytes, as of the last work
	halved          time.Duration // when flow was last halved
}

// distantPast is before any time that a Clock returns. No sum or difference with such a time
// overflows.
const distantPast = math.MinInt64 / 2

// New returns an Engine without sources.
func New(c Config) (*Engine, error) {
	switch {
	case c.Mode > InterruptDriven:
		return nil, fmt.Errorf("napi: unknown mode %d: choose NAPI or InterruptDriven", c.Mode)
	case c.BusyPoll < 0:
		return nil, fmt.Errorf("napi: busy-poll window %v: choose 0 (off) or more", c.BusyPoll)
	case c.Slice < 0:
		return nil, fmt.Errorf("napi: slice %v: choose 0 (%v) or more", c.Slice, DefaultSlice)
	}
	e := &Engine{
		mode:            c.Mode,
		slice:           c.Slice,
		clock:           c.Clock,
		paused:          true,
		lastWork:        distantPast,
		overloadedUntil: distantPast,
		burst:           distantPast,
	}
	if e.slice == 0 {
		e.slice = DefaultSlice
	}
	if e.clock == nil {
		start := time.Now()
		e.clock = func() time.Duration { return time.Since(start) }
	}
	e.SetBusyPoll(c.BusyPoll)
	return e, nil
}

// Add registers a source. Add all sources before the loop starts. A source counts as masked until
// the first Turn.
func (e *Engine) Add(c Spec) (*Source, error) {
	if c.Poller == nil || c.Line == nil {
		return nil, fmt.Errorf("napi: source %q: it needs a Poller and a Line", c.Name)
	}
	if c.Budget < 0 {
		return nil, fmt.Errorf("napi: source %q: budget %d: choose 1 or more, or 0 for %d", c.Name, c.Budget, DefaultBudget)
	}
	if err := c.ITR.check(); err != nil {
		return nil, fmt.Errorf("napi: source %q: %w", c.Name, err)
	}
	if e.running.Load() {
		return nil, fmt.Errorf("napi: source %q: add it before Run: %w", c.Name, ErrRunning)
	}
	s := &Source{name: c.Name, poller: c.Poller, line: c.Line, budget: c.Budget, lastIRQ: distantPast}
	if s.budget == 0 {
		s.budget = DefaultBudget
	}
	s.itr.init(c.ITR, e.clock())
	e.sources = append(e.sources, s)
	return s, nil
}

// ErrRunning means that the engine's loop is running already.
var ErrRunning = errors.New("the engine is running")

// SetBusyPoll changes the busy-poll window. Zero or less switches busy polling off; with Forever
// the loop never sleeps.
func (e *Engine) SetBusyPoll(window time.Duration) { e.window.Store(int64(window)) }

// Action is what the loop does between two Turns.
type Action uint8

const (
	Again Action = iota // nothing: there is more work
	Yield               // let other threads run, for example with OSYield
	Sleep               // sleep until an interrupt, Wake, or Next.For has passed
	Rest                // the same, but no interrupt is armed
)

func (a Action) String() string {
	switch a {
	case Again:
		return "again"
	case Yield:
		return "yield"
	case Sleep:
		return "sleep"
	case Rest:
		return "rest"
	}
	return fmt.Sprintf("Action(%d)", uint8(a))
}

// Forever means no limit, as Next.For.
const Forever time.Duration = math.MaxInt64

// Next tells the loop what to do until the next Turn.
type Next struct {
	Do  Action
	For time.Duration // for Sleep and Rest; 0: check which interrupts fired, without blocking
}

// Turn takes the interrupts that were raised, polls every source on the poll list once, and arms
// the sources that are done. It reads the clock once, at its start. So the Turn that follows a poll
// accounts for what the poll found, and arms its source. After a slice of work a Turn only asks for
// a yield.
func (e *Engine) Turn() Next {
	e.stats.turns.Add(1)
	now := e.clock()
	if e.paused {
		e.resumed = now
	}
	if e.asked {
		e.burst = now
	}
	if e.worked {
		e.lastWork = now
		e.weigh(now)
	}
	if e.idled && now-e.turned >= longLoss {
		e.loss(now)
	}
	if e.gave {
		e.lent = min(e.lent+now-e.turned, maxLent)
	}
	before := e.turned
	e.turned = now
	if e.gave = e.mode == NAPI && e.worked && (e.asked && e.lent <= 0 || now-e.resumed >= e.sliceNow()); e.gave {
		e.lent = max(e.lent-(now-e.resumed), -maxLent)
		return e.pause(Yield, 0)
	}
	busy := e.busyPolling(now, e.worked, e.idled || e.rested)
	vain := e.rested || e.idled && now-before < atOnce // the pause gave the CPU to nobody
	e.idled, e.rested = false, false
	e.polled, e.worked, e.paused = false, false, false

	wait := Forever
	for _, s := range e.sources {
		wait = min(wait, e.settle(s, now, busy))
	}
	yields := busy && !e.overloaded(now) && now-e.lastWork < e.windowNow()
	e.round(yields)

	switch {
	case !e.polled:
		return e.pause(Sleep, wait)
	case yields && !e.worked && vain && e.rests():
		e.rested = true
		return e.pause(Rest, restTime)
	case yields && !e.worked:
		e.idled = true
		return e.pause(Yield, 0)
	case busy && !e.worked:
		return Next{Do: Again} // the next Turn arms
	case e.worked && e.mode == NAPI && e.blocked == 0 && e.window.Load() > 0:
		// The next Turn polls all sources.
	case e.armed > 0:
		// Work goes on, and nobody else would notice the interrupt of an armed source.
		e.stats.looks.Add(1)
		return Next{Do: Sleep}
	}
	return Next{Do: Again}
}

// sliceNow returns how long the loop works without a pause.
func (e *Engine) sliceNow() time.Duration {
	if e.lent > 0 {
		return max(e.slice, fairSlice)
	}
	return e.slice
}

// busyPolling reports whether every source is polled in this Turn: the busy-poll window is open or,
// under overload, the last Turn had work. All are also polled once more after a yield, in which
// others had time to make work.
func (e *Engine) busyPolling(now time.Duration, worked, idled bool) bool {
	window := time.Duration(e.window.Load())
	switch {
	case e.mode != NAPI || e.blocked > 0:
		return false
	case e.overloaded(now):
		return window > 0 && (worked || idled)
	}
	return now-e.lastWork < e.windowNow() || idled
}

// weigh accounts for the bytes since the last Turn.
func (e *Engine) weigh(now time.Duration) {
	for ; e.flow > 0 && now-e.halved >= bulkTime; e.halved += bulkTime {
		e.flow /= 2
	}
	if e.flow == 0 {
		e.halved = now
	}
	e.flow = min(e.flow+e.moved, 2*bulkBytes)
	e.moved = 0
}

// bulk reports whether the sources move bulk, and the busy-poll window may change because of that.
func (e *Engine) bulk() bool {
	window := time.Duration(e.window.Load())
	return e.flow >= bulkBytes && window > 0 && window <= longWindow
}

// bursts reports whether some of it came in bursts recently.
func (e *Engine) bursts() bool { return e.turned-e.burst < burstWindow }

// rests reports whether the loop rests when there is nothing to do.
func (e *Engine) rests() bool { return e.bulk() && !e.bursts() }

// windowNow returns the busy-poll window, including rests.
func (e *Engine) windowNow() time.Duration {
	window := time.Duration(e.window.Load())
	switch {
	case !e.bulk():
		return window
	case e.bursts():
		return burstWindow
	}
	return restWindows * window
}

// loss ends busy polling for a time.
func (e *Engine) loss(now time.Duration) {
	e.stats.losses.Add(1)
	if now-e.overloadedUntil <= max(e.hold, lossHold/4) {
		e.hold = min(2*e.hold, lossHold)
	} else {
		e.hold = firstHold
	}
	e.overloadedUntil = now + e.hold
}

// overloaded reports whether a yield took too long a short time ago.
func (e *Engine) overloaded(now time.Duration) bool {
	return now < e.overloadedUntil && time.Duration(e.window.Load()) != Forever
}

// settle updates one source before the round, and returns how long the source can wait for the next
// time.
func (e *Engine) settle(s *Source, now time.Duration, busy bool) time.Duration {
	raised := s.takeRaised()
	switch s.state {
	case armed:
		if raised {
			e.interrupt(s, now)
		} else if busy {
			e.mask(s)
			e.enlist(s)
		}
		return Forever
	case listed:
		if raised {
			s.stats.spurious.Add(1)
		}
		return Forever
	}

	// An interrupt that comes late, after masking, may be dropped: arming checks for work
	// itself.
	if raised {
		s.stats.spurious.Add(1)
	}
	s.itr.finish(now)
	if busy {
		e.enlist(s)
		return Forever
	}
	if due := s.lastIRQ + s.itr.gap; now < due {
		if !s.held {
			s.held = true
			s.stats.throttled.Add(1)
		}
		return due - now
	}
	if s.line.Arm() {
		s.state = armed
		e.armed++
		return Forever
	}
	s.stats.rechecks.Add(1)
	if e.mode == InterruptDriven {
		e.interrupt(s, now) // immediately, as the hardware would
	} else {
		e.enlist(s)
	}
	return Forever
}

// interrupt is the interrupt handler: step (3).
func (e *Engine) interrupt(s *Source, now time.Duration) {
	s.stats.interrupts.Add(1)
	s.lastIRQ = now
	s.byIRQ = true
	e.mask(s)
	if e.mode == InterruptDriven {
		e.poll(s)
	} else {
		e.enlist(s)
	}
}

// mask disables the source's interrupt and leaves it quiet.
func (e *Engine) mask(s *Source) {
	if s.state == armed {
		e.armed--
	}
	s.state = quiet
	s.line.Mask()
}

// enlist puts a masked source at the tail of the poll list.
func (e *Engine) enlist(s *Source) {
	s.state = listed
	e.list.push(s)
}

// round polls each listed source once: steps (5) to (9). If the loop would yield when nothing is
// found, round ends as soon as every source is known to be empty. It does not poll a source again
// that was polled after the last work.
func (e *Engine) round(yields bool) {
	for n := e.list.n; n > 0; n-- {
		if yields && e.allEmpty() {
			e.polled = true // equivalent to polling them
			return
		}
		s := e.list.pop()
		if exhausted := e.poll(s); exhausted {
			e.list.push(s)
		} else {
			s.state = quiet
		}
	}
}

// poll polls one source and reports whether it used all of its budget.
func (e *Engine) poll(s *Source) (exhausted bool) {
	r := s.poller.Poll(s.budget)
	e.polled = true
	e.asked = e.asked || r.Yield
	s.stats.polls.Add(1)
	if r.Work > 0 {
		e.worked = true
		e.looked++
		bytes := max(r.Bytes, 0)
		e.moved += int64(min(bytes, bulkBytes))
		s.itr.add(r.Work, bytes)
		s.stats.work.Add(uint64(r.Work))
		s.stats.bytes.Add(uint64(bytes))
		if !s.byIRQ {
			s.stats.suppressed.Add(1)
		}
	}
	s.byIRQ, s.held = false, false

	exhausted = r.Work >= s.budget
	if r.Work == 0 || r.Drained && !exhausted {
		s.empty = e.looked
	}
	if exhausted {
		s.stats.exhausted.Add(1)
	}
	e.setBlocked(s, r.Blocked && !exhausted)
	return exhausted
}

// allEmpty reports whether each source was seen empty since the last work of any source and the
// last pause.
func (e *Engine) allEmpty() bool {
	for _, s := range e.sources {
		if s.empty != e.looked {
			return false
		}
	}
	return true
}

func (e *Engine) setBlocked(s *Source, blocked bool) {
	if blocked {
		s.stats.blocked.Add(1)
	}
	if blocked == s.blocked {
		return
	}
	s.blocked = blocked
	if blocked {
		e.blocked++
	} else {
		e.blocked--
	}
}

// pause ends a Turn after which the loop gives up the CPU.
func (e *Engine) pause(do Action, wait time.Duration) Next {
	e.paused, e.asked = true, false
	e.looked++
	switch do {
	case Yield:
		e.stats.yields.Add(1)
	case Rest:
		e.stats.rests.Add(1)
	default:
		e.stats.sleeps.Add(1)
	}
	return Next{Do: do, For: wait}
}

// maskAll leaves every source masked and the poll list empty. Waiting work is found when the
// sources are armed again.
func (e *Engine) maskAll() {
	for _, s := range e.sources {
		e.mask(s)
	}
	for e.list.n > 0 {
		e.list.pop()
	}
}
