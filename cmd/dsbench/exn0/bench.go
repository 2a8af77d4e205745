package exn0

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
)

const (
	// leastRelay is how much of veth the relay has to reach for a run to count.
	leastRelay = 0.7

	// mostForeign is how much of one CPU other programs may take during a run.
	mostForeign = 0.1
)

// A bench carries a plan out.
type bench struct {
	Plan
	progress *report.Progress

	duo     *measure.Duo
	apart   bool // each of the duo has a CPU of its own
	entries map[key]*measure.Entry
	paths   map[string]*path.Path

	runs      map[key][]outcome
	disturbed map[string]int // runs of a load that count nevertheless
	invalid   int            // runs in which the relay was too slow
	failed    map[string]error
	order     []string // of failed
}

// A key names a load over a path.
type key struct{ load, path string }

// rounds makes all runs. A run that is not valid is made again, but no more
// than as many times as there are runs.
func (b *bench) rounds(ctx context.Context) error {
	if err := b.build(); err != nil {
		return err
	}
	spare := b.Runs
	for done := 0; done < b.Runs; {
		for _, l := range b.needed() {
			if b.failed[l.name] != nil {
				continue
			}
			b.progress.Doing(l.name)
			outcomes, disturbed, err := b.quietly(ctx, l)
			if ctx.Err() != nil {
				return nil // the caller has the cause
			}
			if err != nil {
				b.fail(l.name, err)
				continue
			}
			if l.name == probe && throughput(outcomes[relay]) < leastRelay*throughput(outcomes[veth]) {
				b.invalid++
				if spare > 0 {
					spare--
					done--
					break
				}
			}
			if disturbed {
				b.disturbed[l.name]++
			}
			for name, o := range outcomes {
				b.runs[key{l.name, name}] = append(b.runs[key{l.name, name}], o)
			}
			b.progress.Done(time.Duration(len(l.over)) * l.takes)
		}
		done++
	}
	return nil
}

// tries is how often a load is run until it is undisturbed.
const tries = 2

// quietly runs a load over all its paths, again if others disturbed it.
func (b *bench) quietly(ctx context.Context, l load) (outcomes map[string]outcome, disturbed bool, err error) {
	for range tries {
		outcomes, disturbed = map[string]outcome{}, false
		for _, name := range l.over {
			o, foreign, err := b.run(ctx, l, name)
			if err != nil {
				return nil, false, fmt.Errorf("over %s: %w", name, err)
			}
			outcomes[name] = o
			disturbed = disturbed || foreign > mostForeign
		}
		if !disturbed {
			break
		}
	}
	return outcomes, disturbed, nil
}

// run runs a load over one path.
func (b *bench) run(ctx context.Context, l load, name string) (o outcome, foreign float64, err error) {
	p := b.paths[name]
	defer func() {
		if broken := p.Broken(); err != nil && broken != nil {
			err = broken // which is why
		}
	}()
	entry, err := b.entry(ctx, l, p)
	if err != nil {
		return o, 0, err
	}
	if p.Accompany != nil {
		var end func() error
		if end, err = p.Accompany(); err != nil {
			return o, 0, err
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	daemons, err := cpuOf(p.Daemons)
	if err != nil {
		return o, 0, err
	}
	watch, err := measure.NewWatch(append(append(b.duo.Processes(), p.Daemons...), os.Getpid()))
	if err != nil {
		return o, 0, err
	}
	if o.Result, err = entry.Run(ctx, l.count); err != nil {
		b.closeDuo() // an error leaves it useless
		return o, 0, err
	}
	if foreign, err = watch.Foreign(); err != nil {
		return o, 0, err
	}
	after, err := cpuOf(p.Daemons)
	o.daemons = after - daemons
	return o, foreign, err
}

func cpuOf(pids []int) (sum time.Duration, err error) {
	for _, pid := range pids {
		d, err := measure.ProcessCPU(pid)
		if err != nil {
			return 0, err
		}
		sum += d
	}
	return sum, nil
}

// entry prepares a load over a path when it is first wanted.
func (b *bench) entry(ctx context.Context, l load, p *path.Path) (e *measure.Entry, err error) {
	if b.duo != nil && b.apart != l.apart {
		b.closeDuo()
	}
	if b.duo == nil {
		cpus := [2]int{measure.AnyCPU, measure.AnyCPU}
		if b.apart = l.apart; l.apart {
			cpus = b.CPUs
		}
		if b.duo, err = measure.Start(cpus[0], cpus[1]); err != nil {
			return nil, err
		}
		b.entries = map[key]*measure.Entry{}
		context.AfterFunc(ctx, b.duo.Close)
	}
	k := key{l.name, p.Name}
	if b.entries[k] == nil {
		params := l.params
		params.Dir, params.Ends = p.Fabric(), p.Ends
		if l.name == joined {
			params.Ends = p.Joined()
		}
		if b.entries[k], err = b.duo.Prepare(ctx, l.contender, params); err != nil {
			b.closeDuo()
			return nil, err
		}
	}
	return b.entries[k], nil
}

// idle is the CPU use of the daemons of a path without traffic, in percent.
func (b *bench) idle(ctx context.Context, pt point) (float64, error) {
	if err := b.build(); err != nil {
		return 0, err
	}
	b.closeDuo()
	p := b.paths[pt.subject]
	sleep := func(d time.Duration) {
		select {
		case <-time.After(d):
		case <-ctx.Done():
		}
	}
	sleep(time.Second) // what was under way comes to an end
	before, err := cpuOf(p.Daemons)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	sleep(b.watching())
	after, err := cpuOf(p.Daemons)
	return 100 * float64(after-before) / float64(time.Since(start)), err
}

// allocations are the heap objects that the daemons allocate for each packet of
// the probe. Asking them allocates too; that is measured first and taken off.
func (b *bench) allocations(ctx context.Context, pt point) (float64, error) {
	if err := b.build(); err != nil {
		return 0, err
	}
	l := b.needed()[0]
	l.count = 1000 // also of a quick plan: asking does not cost the same each time
	p := b.paths[pt.subject]
	if _, _, err := b.run(ctx, l, pt.subject); err != nil { // what is made on first use
		return 0, err
	}
	var asked [3]path.Tally
	for i := range asked {
		if i == len(asked)-1 {
			if _, _, err := b.run(ctx, l, pt.subject); err != nil {
				return 0, err
			}
		}
		var err error
		if asked[i], err = p.Tally(ctx); err != nil {
			return 0, err
		}
	}
	asking := asked[1].Objects - asked[0].Objects
	per := max(0, asked[2].Objects-asked[1].Objects-asking) / max(1, asked[2].Packets-asked[1].Packets)
	if per < leastAllocation {
		return 0, nil
	}
	return per, nil
}

// leastAllocation is what counts as none: less than one object in so many
// packets is what the daemon does by the clock.
const leastAllocation = 1e-3

// build builds the paths that the plan needs.
func (b *bench) build() error {
	if b.paths != nil {
		return nil
	}
	b.paths = map[string]*path.Path{}
	b.progress.Doing("building the networks")
	wanted := []string{}
	for _, l := range b.needed() {
		wanted = append(wanted, l.over...)
	}
	for _, pt := range b.points() {
		wanted = append(wanted, pt.subject)
	}
	for _, name := range wanted {
		if b.paths[name] != nil {
			continue
		}
		p, err := builds[name](b.Plan)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoPaths, err)
		}
		p.Name = name
		b.paths[name] = p
	}
	return nil
}

func (b *bench) fail(name string, err error) {
	b.failed[name] = err
	b.order = append(b.order, name)
}

func (b *bench) closeDuo() {
	if b.duo != nil {
		b.duo.Close()
		b.duo = nil
	}
}

func (b *bench) close() {
	b.closeDuo()
	for name, p := range b.paths {
		if err := p.Close(); err != nil {
			b.progress.Doing("closing " + name) // nothing to be done about it
		}
	}
}
