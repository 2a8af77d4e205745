package comparison

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
	"exnet/directsockets/dissect"
)

// A Breakdown says in which layers the processors are while messages go round: what
// table 5.1 of the thesis says of the TCP/IP of its time. It is `dsbench breakdown`.
//
// While rr runs over a path, perf(1) notes 4000 times a second on each processor where
// that is and from where that was called. A sample belongs to the layer of the innermost
// function that is known to be of one (so a lock that TCP takes is TCP's), and counts if it
// is of the two programs, of the daemons of the path, or of packets that an interrupt
// handles. Where interrupts are off, as while somebody is woken, a sample is taken as soon
// as they are on again, in the same layer mostly. Idle processors do not count: what is shown is work, not the time that a message
// takes, of which waiting and the ways between processors are most. A program that
// polls works all the time.
//
// That time is shown beside it, twice. By the client's own clock: how long its write takes, and how long it
// then waits for the answer. Those two need neither perf nor root. And by the tracepoints of the
// kernel, where it is root's: how long a message takes from each to the next ([milestone]). What
// is noted is slower by that, so the whole round trip stands there, too.
//
// What goes through shared memory passes no tracepoint. A lane by itself is taken apart by
// stamps in a program that has both of its ends (package dissect): the paths lane and
// lane-asleep. Beside its steps stands what they have to add up to, and by how much they do not.
type Breakdown struct {
	Plan
	Perf string // path of the program perf; "": there is none
}

// A layer is a row of the table, and how its functions begin.
type layer struct {
	name  string
	what  string
	table float64 // ns of a round trip in table 5.1; 0: not in it
	begin []string
}

// The layers of functions of the kernel; the first that matches counts.
var layers = []layer{
	{"wake", "waking, sleeping and choosing who runs", 0, []string{"try_to_wake_up", "ttwu_", "__wake_up", "wake_up", "schedule", "__schedule", "sched_", "enqueue_task", "dequeue_",
		"pick_next", "update_curr", "psi_", "finish_task_switch", "autoremove_wake", "default_wake", "woken_wake", "wait_woken", "__switch_to", "switch_mm", "do_futex", "futex_", "sk_wait_data", "sock_def_", "unix_write_space", "ep_poll_callback", "prepare_to_wait", "finish_wait", "hrtimer_", "reschedule_", "sysvec_reschedule", "sysvec_call_function", "flush_smp_call", "do_sched_yield", "do_poll", "do_sys_poll"}},
	{"tun", "the TUN, as a character device and as an interface", 0, []string{"tun_", "tap_"}},
	{"driver", "handing a packet to a device: veth, the loopback interface", 1987, []string{"veth_", "loopback_xmit", "dev_hard_start_xmit", "__dev_queue_xmit", "dev_queue_xmit", "validate_xmit", "netif_skb_features", "dev_", "sch_", "pfifo", "eth_"}},
	{"protocol-handler", "taking packets from the backlog of a processor", 430, []string{"net_rx_action", "__napi_poll", "process_backlog", "__netif_", "netif_", "enqueue_to_backlog", "handle_softirqs", "__do_softirq", "do_softirq", "__local_bh_enable", "napi_", "rps_"}},
	{"ip", "IP and the tables behind it", 1120, []string{"ip_", "__ip_", "ipv4_", "fib_", "nf_", "__nf_", "ipt_", "inet_ehash", "rt_", "dst_", "neigh_"}},
	{"tcp", "TCP", 2356, []string{"tcp_", "__tcp_", "inet_csk", "bictcp", "cubictcp", "bbr_"}},
	{"copy", "copying bytes and allocating buffers", 0, []string{"_copy_to_iter", "_copy_from_iter", "copy_", "__skb_", "skb_", "__alloc_skb", "alloc_skb", "kfree_skb", "__kfree_skb", "kmem_cache", "kmalloc", "__kmalloc", "simple_copy", "sock_wfree", "sock_rfree", "__build_skb", "build_skb"}},
	{"socket", "system calls and sockets", 1779, []string{"sock_", "__sock_", "inet_", "unix_", "sk_", "__sk_", "lock_sock", "release_sock", "security_", "apparmor", "entry_SYSCALL", "do_syscall", "syscall_", "__x64_sys", "x64_sys", "ksys_", "vfs_", "new_sync", "fdget", "__fget", "fput", "rw_verify", "__fdget"}},
}

// What is not the kernel's, or cannot be told.
const (
	inProgram = "program"
	inLibrary = "library"
	inDaemon  = "daemon"
	inOther   = "other"
	inAll     = "all"
)

// others are the rows of those.
var others = []layer{
	{inProgram, "the two programs themselves, and libc", 0, nil},
	{inLibrary, "libextds.so, which polls while it waits", 0, nil},
	{inDaemon, "the daemons of exn0 themselves, which poll while they wait", 0, nil},
	{inOther, "other parts of the kernel", 1770 + 1580, nil},
	{inAll, "all of it", 11022, nil},
}

// steps are the rows of the client's clock.
var steps = []layer{
	{"time-write", "the call that writes a message", 0, nil},
	{"time-wait", "waiting for the answer after that", 0, nil},
	{"time-round", "the whole round trip", 0, nil},
}

// The paths on which a lane is taken apart.
const (
	polled = "lane"
	slept  = "lane-asleep"
)

// laneSums are the rows behind the steps of a lane.
var laneSums = []dissect.Step{
	{Name: "sum", What: "all of that"},
	{Name: "whole", What: "a round trip without stamps in it, in turn with those; how far the sum is from it is noted"},
}

// thesis is the path under which table 5.1 is shown.
const thesis = "table-5.1"

// breakdownPaths are the ways whose programs have processors to themselves.
var breakdownPaths = []string{reference, "unix", "veth", "exn0", "ds-preload", "ds-go", polled, slept}

// Check finds what is impossible.
func (b Breakdown) Check() error {
	for _, name := range b.Paths {
		if !slices.Contains(breakdownPaths, name) {
			return fmt.Errorf("no breakdown of the path %q; there are %s", name, strings.Join(breakdownPaths, ", "))
		}
	}
	if len(b.Tests) > 0 {
		return errors.New("a breakdown has no --test: all layers are found at once")
	}
	return b.profiled().Check()
}

const (
	frequency = 3999 // a second, and not in step with what the kernel does each ms
	profiling = 1500 * time.Millisecond
)

// Takes is about how long it takes.
func (b Breakdown) Takes() time.Duration {
	d := time.Duration(len(b.profiled().ways())) * (opening + time.Duration(b.Runs)*b.runTakes())
	return d + time.Duration(len(b.lanes())*b.Runs)*b.dissecting()
}

// runTakes is how long a run of all that is measured takes.
func (b Breakdown) runTakes() time.Duration {
	const switching = 300 * time.Millisecond // tracepoints on and off
	d := 2*b.length() + switching
	if b.Perf != "" {
		d += b.length() + profiling
	}
	return d
}

// profiled is the plan with the paths that it comes to, but for those of lanes.
func (b Breakdown) profiled() Plan {
	if b.Paths == nil {
		b.Paths = breakdownPaths
	}
	p := b.Plan
	p.Paths = slices.DeleteFunc(slices.Clone(b.Paths), func(name string) bool { return name == polled || name == slept })
	if len(p.Paths) == 0 {
		p.Paths = []string{reference} // none are all
	}
	return p
}

// lanes are the paths that it leaves out.
func (b Breakdown) lanes() (names []string) {
	for _, name := range []string{polled, slept} {
		if b.Paths == nil || slices.Contains(b.Paths, name) {
			names = append(names, name)
		}
	}
	return names
}

// Run measures and adds the rows to r.
func (b Breakdown) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	wanted := b.Paths
	plan := b.profiled()
	bench := &bench{Plan: plan, progress: progress, report: r, paths: map[string]carrier{}, failed: map[string]bool{}}
	bench.optional = wanted == nil
	defer bench.close()
	bench.open(ctx, plan.ways())
	rr := plan.load("rr")
	times := map[string]map[string][]float64{} // by path and layer
	var noLayers error
	if b.Perf == "" {
		noLayers = errors.New("no program perf: install it (Debian: linux-perf), or give its path with --perf")
	}
	shares, untraced := map[string][]float64{}, map[string]error{}
	for range b.Runs {
		for _, w := range plan.ways() {
			c, ok := bench.paths[w.name].(*pumped)
			if !ok || bench.failed[w.name] || ctx.Err() != nil {
				continue
			}
			progress.Doing("timing messages over " + w.name)
			found, err := clocked(ctx, c, rr)
			if err == nil {
				progress.Doing("tracing messages over " + w.name)
				var steps map[string]float64
				var share float64
				var not untraceable
				switch steps, share, err = traced(ctx, c, rr); {
				case errors.As(err, &not):
					untraced[w.name], err = not, nil
				case err == nil:
					maps.Copy(found, steps)
					shares[w.name] = append(shares[w.name], share)
				}
			}
			if err == nil && b.Perf != "" {
				progress.Doing("sampling the CPUs, messages over " + w.name)
				var sampled map[string]float64
				var not unsampled
				if sampled, err = b.profile(ctx, c, rr); errors.As(err, &not) {
					noLayers, err = not, nil
				}
				maps.Copy(found, sampled)
			}
			if ctx.Err() != nil {
				continue
			}
			if err != nil {
				bench.failed[w.name] = true
				r.Fail("breakdown of "+w.name, err)
				continue
			}
			if times[w.name] == nil {
				times[w.name] = map[string][]float64{}
			}
			for _, l := range slices.Concat(layers, others, steps, tracedSteps[:]) {
				if v, ok := found[l.name]; ok {
					times[w.name][l.name] = append(times[w.name][l.name], v)
				}
			}
			progress.Done(b.runTakes())
		}
	}
	if noLayers != nil {
		r.Skip("CPU time of the layers", noLayers)
	}
	for path := range shares {
		delete(untraced, path) // in another run it was
	}
	skipUntraced(r, plan.ways(), untraced)
	for _, each := range []struct {
		layers []layer
		what   string
	}{
		{layers, "CPU time for one round trip of 64 bytes in "},
		{others, "CPU time for one round trip of 64 bytes in "},
		{tracedSteps[:], "by the kernel's tracepoints, mean of an ordinary round trip of 64 bytes, both ways together: "},
		{steps, "time by the client's clock, mean, of "},
	} {
		for _, l := range each.layers {
			for _, w := range plan.ways() {
				if runs := times[w.name][l.name]; slices.ContainsFunc(runs, func(v float64) bool { return v > 0 }) {
					row := report.Row{Test: l.name, Path: w.name, Size: message, Unit: report.Nanoseconds, Runs: runs, What: each.what + l.what}
					if l.name == tracedSteps[milestones].name {
						row.Note = fmt.Sprintf("%.0f %% of the round trips pass the same tracepoints; the middle half of those is shown", 100*measure.Median(shares[w.name]))
					}
					r.Rows = append(r.Rows, row.Finish())
				}
			}
			if l.table > 0 && noLayers == nil {
				r.Rows = append(r.Rows, report.Row{Test: l.name, Path: thesis, Size: message, Unit: report.Nanoseconds, Runs: []float64{l.table},
					Note: "not measured here: table 5.1 of the thesis, Gigabit Ethernet and Linux 2.6.18; its interrupt and its media stand under other"}.Finish())
			}
		}
	}
	b.dissect(ctx, r, progress)
	if ctx.Err() != nil {
		r.Partial = true
		return context.Cause(ctx)
	}
	return nil
}

// skipUntraced says why there are no steps, once for all paths if it is the same.
func skipUntraced(r *report.Report, ways []way, untraced map[string]error) {
	said := map[string]bool{}
	for _, w := range ways {
		if err := untraced[w.name]; err != nil && !said[err.Error()] {
			said[err.Error()] = true
			r.Skip("tracepoints over "+w.name, err)
		}
	}
}

// load is one of the standard loads by its name.
func (p Plan) load(name string) load {
	all := loads(false)
	return all[slices.IndexFunc(all, func(l load) bool { return l.name == name })]
}

// clocked is how long the steps of one round trip take by the client's clock.
func clocked(ctx context.Context, c *pumped, l load) (found map[string]float64, err error) {
	l.split = true
	o, _, err := c.run(ctx, l, message)
	if err != nil {
		return nil, err
	}
	rounds := float64(o.Bytes) / message
	write, wait := float64(o.Writing)/rounds, float64(o.Waiting)/rounds
	return map[string]float64{"time-write": write, "time-wait": wait, "time-round": write + wait}, nil
}

// An unsampled is why there are no layers: not that the messages failed.
type unsampled struct{ error }

// refused is why perf record does not begin. It has much to say.
func refused(complaints string) error {
	if strings.Contains(complaints, "perf_event_paranoid") {
		return unsampled{errors.New("perf may not look at all of the machine: run it with sudo, or have kernel.perf_event_paranoid be -1")}
	}
	first, _, _ := strings.Cut(strings.TrimSpace(strings.TrimPrefix(complaints, "Error:")), "\n")
	return unsampled{fmt.Errorf("perf record ended: %s", first)}
}

// profile watches a run, and returns the CPU time of each layer for one round trip.
func (b Breakdown) profile(ctx context.Context, c *pumped, l load) (found map[string]float64, err error) {
	dir, err := os.MkdirTemp("", "dsbench-perf-")
	if err != nil {
		return nil, fmt.Errorf("make a private directory: %w", err)
	}
	defer os.RemoveAll(dir)
	data := filepath.Join(dir, "data")
	var complaints bytes.Buffer
	// It samples as long as a program runs: one that says so, and waits for us.
	perf := &process{cmd: exec.CommandContext(ctx, b.Perf, "record", "-q", "-e", "cpu-clock", "-F", strconv.Itoa(frequency), "-a", "-g", "-o", data,
		"--", "sh", "-c", "echo sampling; read end"), ended: make(chan struct{})}
	perf.cmd.Stderr = &complaints
	finish, err := perf.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	perf.cmd.Stdout = w
	err = perf.start(nil, measure.AnyCPU)
	w.Close()
	if err != nil {
		return nil, err
	}
	defer perf.end()
	if line, err := bufio.NewReader(r).ReadString('\n'); err != nil || line != "sampling\n" {
		perf.end()
		return nil, refused(complaints.String())
	}
	o, _, err := c.run(ctx, l, message)
	if err != nil {
		return nil, err
	}
	finish.Close()
	select {
	case <-perf.ended:
	case <-time.After(patience):
		return nil, errors.New("perf record does not end")
	}
	script := exec.CommandContext(ctx, b.Perf, "script", "-i", data, "-F", "comm,pid,ip,sym,dso")
	script.Stderr = io.Discard // it complains of symbols that it lacks
	text, err := script.Output()
	if err != nil {
		return nil, fmt.Errorf("perf script: %w", err)
	}
	samples, err := countLayers(bytes.NewReader(text), c.pids, c.daemons())
	if err != nil {
		return nil, err
	}
	rounds := float64(o.Times.Count()) * 1.1 // with the warm-up
	if samples[inAll] == 0 || rounds == 0 {
		return nil, errors.New("perf saw nothing of the programs: is the clock event cpu-clock there?")
	}
	for name, n := range samples {
		samples[name] = n * 1e9 / frequency / rounds
	}
	return samples, nil
}

// countLayers counts the samples that perf script prints:
//
//	pump 4242
//		ffffffff815e16cd tcp_sendmsg_locked ([kernel.kallsyms])
//		…, each called by the next
//		           d4ad7 __GI___write (/usr/lib/x86_64-linux-gnu/libc.so.6)
//	(an empty line)
func countLayers(text io.Reader, programs, daemons []int) (samples map[string]float64, err error) {
	samples = map[string]float64{}
	var comm string
	var pid int
	var frames [][2]string // symbol and object, innermost first
	add := func() {
		if len(frames) == 0 {
			return
		}
		if l := layerOf(comm, slices.Contains(programs, pid), slices.Contains(daemons, pid), frames); l != "" {
			samples[l]++
			samples[inAll]++
		}
		frames = nil
	}
	s := bufio.NewScanner(text)
	for s.Scan() {
		line := strings.TrimRight(s.Text(), " ")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0:
			add()
		case line[0] != '\t':
			comm = strings.Join(fields[:len(fields)-1], " ")
			if pid, err = strconv.Atoi(fields[len(fields)-1]); err != nil {
				return nil, fmt.Errorf("perf script printed %q", line)
			}
		case len(fields) >= 3:
			frames = append(frames, [2]string{fields[1], strings.Trim(fields[len(fields)-1], "()")})
		}
	}
	add()
	return samples, s.Err()
}

// layerOf is the layer of a sample; "" if it does not count.
func layerOf(comm string, program, daemon bool, frames [][2]string) string {
	const kernel = "[kernel.kallsyms]"
	object := frames[0][1]
	if object != kernel && !strings.HasSuffix(object, ".ko") {
		switch {
		case daemon:
			return inDaemon
		case program && strings.HasSuffix(object, "libextds.so"):
			return inLibrary
		case program:
			return inProgram
		}
		return ""
	}
	found := inOther
search:
	for _, f := range frames {
		for _, l := range layers {
			if slices.ContainsFunc(l.begin, func(begin string) bool { return strings.HasPrefix(f[0], begin) }) {
				found = l.name
				break search
			}
		}
	}
	if program || daemon {
		return found
	}
	// On behalf of others only packets are handled that may be ours: by an interrupt while
	// the processor was idle, or by the thread for them.
	if (strings.HasPrefix(comm, "swapper") || strings.HasPrefix(comm, "ksoftirqd")) && found != "wake" && found != inOther && found != "socket" {
		return found
	}
	return ""
}
