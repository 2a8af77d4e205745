package comparison

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/tracing"
)

// A milestone is a tracepoint that a message passes on its way to the other side. The time
// from one to the next is that of the step named after the first.
//
//	write ── send ── queue ── device ── receive ── receive ── waking ── wake ── switch ── return ── read ── program ── write (of the answer)
//
// Over exn0 the daemon of the one side takes the packet after queue, and that of the
// other gives it to its kernel. One of AF_UNIX leaves out what has to do with packets. Where
// nobody is woken because somebody has done so before (AF_UNIX does, who reads wakes who
// waits on the other side), the end of write stands for waking: the message is there. Where a receiver had not
// left its CPU yet, it is not switched to, either.
type milestone int

const (
	written  milestone = iota // a program calls write
	queued                    // its packet is given to an interface
	taken                     // exn-tun has it, of a TUN
	handed                    // exn-tun writes it to the other
	received                  // the packet is given to IP
	waking                    // the message is there, and the receiver to be woken
	switched                  // it has a CPU
	read                      // its read returns
	milestones
)

// tracedSteps are the rows of what lies after each milestone, and of all.
var tracedSteps = [milestones + 1]layer{
	written:    {name: "trace-send", what: "from the call of write until the packet is given to a device (AF_UNIX: until the message is there): system call, socket, TCP, IP"},
	queued:     {name: "trace-device", what: "until IP has the packet again (exn0: until the daemon has read it): the device, the backlog, softirq"},
	taken:      {name: "trace-fabric", what: "until the daemon of the other side writes it to its TUN: both daemons, VELO or RMA between them"},
	handed:     {name: "trace-tun", what: "until IP has the packet: the TUN"},
	received:   {name: "trace-receive", what: "until the receiver is woken: IP and TCP"},
	waking:     {name: "trace-wake", what: "until the receiver has a CPU: interrupt between CPUs, idle, scheduler"},
	switched:   {name: "trace-return", what: "until its read returns: socket, copy, system call"},
	read:       {name: "trace-program", what: "until it writes the answer: the program"},
	milestones: {name: "trace-round", what: "the whole round trip, while it is traced"},
}

// points are the tracepoints of the milestones.
func points() []tracing.Point {
	calls := func(numbers ...int) string {
		var each []string
		for _, n := range numbers {
			each = append(each, "id == "+strconv.Itoa(n))
		}
		return "(" + strings.Join(each, " || ") + ")"
	}
	const programs = `(comm == "pump" || comm == "exn-tun")`
	return []tracing.Point{
		{Name: "raw_syscalls/sys_enter", Filter: programs + " && " + calls(unix.SYS_WRITE, unix.SYS_WRITEV)},
		{Name: "raw_syscalls/sys_exit", Filter: programs + " && ret > 0 && " + calls(unix.SYS_READ, unix.SYS_READV, unix.SYS_WRITE)},
		{Name: "net/net_dev_queue", Filter: `comm == "pump"`},
		{Name: "net/netif_receive_skb"},
		{Name: "sched/sched_waking", Filter: `comm == "pump"`},
		{Name: "sched/sched_switch", Filter: `next_comm == "pump"`},
	}
}

// A round is one round trip: when which milestone was passed, of the message and the answer.
type round struct {
	at   [2][milestones]time.Duration // 0: not passed
	ends time.Duration
}

func (r *round) takes() time.Duration { return r.ends - r.at[0][written] }

// way is which milestones it passed.
func (r *round) way() (passed [2][milestones]bool) {
	for i := range r.at {
		for m, at := range r.at[i] {
			passed[i][m] = at != 0
		}
	}
	return passed
}

// A tracer follows the messages of two programs in what the kernel has noted.
type tracer struct {
	sides   [2]int // the processes of client and server
	daemons []int
	process map[int]int // of a thread

	now    round
	side   int       // whose message is under way
	passed milestone // by it, the last
	packet string    // in which it is
	begun  bool
	rounds []round
}

func newTracer(client, server int, daemons []int) *tracer {
	return &tracer{sides: [2]int{client, server}, daemons: daemons, process: map[int]int{}}
}

// line takes an event, of which there is one in a line:
//
//	pump-4243    (   4242) [001] .....   964.428109: sys_enter: NR 1 (3, 7f…, 40, 0, 4, 0)
//	pump-4243    (   4242) [001] ..s1.   964.428113: netif_receive_skb: dev=lo skbaddr=00000000a0af89bf len=116
//
// The name may have blanks, and the process may be unknown: (-------).
func (t *tracer) line(text string) {
	head, event, found := strings.Cut(text, ": ")
	bracket := strings.LastIndex(head, ") [")
	open := strings.LastIndex(head, "(")
	if !found || bracket < 0 || open < 0 || open > bracket {
		return
	}
	task := strings.TrimSpace(head[:open])
	thread, err := strconv.Atoi(task[strings.LastIndex(task, "-")+1:])
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(head[open+1 : bracket]))
	if err != nil {
		pid = t.processOf(thread)
	}
	t.process[thread] = pid
	seconds, err := strconv.ParseFloat(head[strings.LastIndex(head, " ")+1:], 64)
	if err != nil {
		return
	}
	name, rest, _ := strings.Cut(event, ": ")
	t.event(time.Duration(seconds*1e9), pid, name, rest)
}

// processOf is that of a thread, of which only the first has the same number.
func (t *tracer) processOf(thread int) int { return cmp.Or(t.process[thread], thread) }

// event finds the milestone of an event.
func (t *tracer) event(at time.Duration, pid int, name, rest string) {
	number := func() int { // of a system call
		n, _ := strconv.Atoi(strings.Fields(rest + " NR -1")[1])
		return n
	}
	switch receiver := t.sides[1-t.side]; {
	case name == "sys_enter" && slices.Contains(t.daemons, pid):
		if number() == unix.SYS_WRITEV {
			t.pass(handed, at)
		}
	case name == "sys_exit" && slices.Contains(t.daemons, pid):
		if number() == unix.SYS_READV {
			t.pass(taken, at)
		}
	case name == "sys_enter" && slices.Contains(t.sides[:], pid):
		t.write(slices.Index(t.sides[:], pid), at)
	case name == "sys_exit" && pid == receiver:
		if number() == unix.SYS_READ {
			t.pass(read, at)
		}
	case name == "sys_exit" && pid == t.sides[t.side]:
		if number() == unix.SYS_WRITE && (t.passed == written || t.passed == received) {
			t.pass(waking, at)
		}
	case name == "net_dev_queue" && pid == t.sides[t.side]:
		if t.pass(queued, at) {
			t.packet = field(rest, "skbaddr=")
		}
	case name == "netif_receive_skb" && (field(rest, "skbaddr=") == t.packet || slices.Contains(t.daemons, pid)):
		t.pass(received, at)
	case name == "sched_waking" && t.processOf(integer(rest, "pid=")) == receiver:
		t.pass(waking, at)
	case name == "sched_switch" && t.processOf(integer(rest, "next_pid=")) == receiver && t.passed == waking:
		t.pass(switched, at)
	}
}

func field(text, name string) string {
	_, after, _ := strings.Cut(text, name)
	value, _, _ := strings.Cut(after, " ")
	return value
}

func integer(text, name string) int {
	n, _ := strconv.Atoi(field(text, name))
	return n
}

// pass notes a milestone, if it is one that the message has before it.
func (t *tracer) pass(m milestone, at time.Duration) bool {
	if !t.begun || m <= t.passed {
		return false
	}
	t.now.at[t.side][m], t.passed = at, m
	return true
}

// write is a message of a side, after which that of the other is read.
func (t *tracer) write(side int, at time.Duration) {
	complete := t.begun && t.side != side && t.passed == read
	if side == 0 {
		if complete {
			t.now.ends = at
			t.rounds = append(t.rounds, t.now)
		}
		t.now, t.begun = round{}, true
	} else if !complete {
		t.begun = false // until the client writes again
	}
	t.side, t.passed, t.packet = side, written, ""
	t.now.at[side][written] = at
}

// fewest is how many round trips have to be seen.
const fewest = 50

// steps is how long the steps of an ordinary round trip take, in both directions together,
// and what share of all goes that way. Ordinary are those that go the most usual way,
// and of them the middle half, by how long they take. So the steps sum up to
// the whole, which medians would not. The kernel gives whole microseconds, which means do not mind.
func (t *tracer) steps() (found map[string]float64, share float64, err error) {
	ways := map[[2][milestones]bool]int{}
	for _, r := range t.rounds {
		ways[r.way()]++
	}
	var usual [2][milestones]bool
	for way, n := range ways {
		if n > ways[usual] {
			usual = way
		}
	}
	if ways[usual] < fewest {
		return nil, 0, fmt.Errorf("only %d of %d round trips go the same way, which is too few", ways[usual], len(t.rounds))
	}
	share = float64(ways[usual]) / float64(len(t.rounds))
	ordinary := slices.DeleteFunc(slices.Clone(t.rounds), func(r round) bool { return r.way() != usual })
	slices.SortFunc(ordinary, func(a, b round) int { return cmp.Compare(a.takes(), b.takes()) })
	ordinary = ordinary[len(ordinary)/4 : len(ordinary)-len(ordinary)/4]
	found = map[string]float64{}
	for _, r := range ordinary {
		next := r.ends
		for i := 1; i >= 0; i-- {
			for m := read; m >= written; m-- {
				if at := r.at[i][m]; at != 0 {
					found[tracedSteps[m].name] += float64(next-at) / float64(len(ordinary))
					next = at
				}
			}
		}
		found[tracedSteps[milestones].name] += float64(r.takes()) / float64(len(ordinary))
	}
	return found, share, nil
}

// errUntraced is of a path on which there is nothing to note.
var errUntraced = errors.New("its messages pass no tracepoint: they are written and read in shared memory, and who waits polls; see the path lane")

// An untraceable is why there are no steps: not that the messages failed.
type untraceable struct{ error }

// traced is how long the steps of a message take by the kernel's tracepoints. They are on
// while it runs only: they slow down every system call of the machine.
func traced(ctx context.Context, c *pumped, l load) (found map[string]float64, share float64, err error) {
	s, err := tracing.Open(points(), slices.DeleteFunc(slices.Clone(c.plan.CPUs[:]), func(cpu int) bool { return cpu == measure.AnyCPU }))
	if err != nil {
		return nil, 0, untraceable{err}
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := s.Start(); err != nil {
		return nil, 0, err
	}
	o, _, err := c.run(ctx, l, message)
	if err != nil {
		return nil, 0, err
	}
	t := newTracer(c.pids[1], c.pids[0], c.daemons())
	if err := s.Stop(t.line); err != nil {
		return nil, 0, untraceable{err}
	}
	if rounds := o.Bytes / message; uint64(len(t.rounds)) < rounds/10 {
		return nil, 0, untraceable{errUntraced}
	}
	if found, share, err = t.steps(); err != nil {
		return nil, 0, untraceable{err}
	}
	return found, share, nil
}
