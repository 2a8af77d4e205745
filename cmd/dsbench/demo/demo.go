package demo

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"syscall"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/path"
	"exnet/cmd/dsbench/report"
	"exnet/cmd/dsbench/workload"
)

// A Plan is what to show and how.
type Plan struct {
	Daemon  string        // path of exn-tun; "": there is none
	Library string        // path of libextds.so; "": there is none
	Pump    string        // path of pump; "": there is none
	Length  time.Duration // of a run
	Pairs   int           // of runs that each figure is the median of
	Scenes  []string      // which; none: all
}

// What a demonstration may take: of a scene, so many times what it takes on a quiet machine. That
// keeps all of them below a minute. Packages that have to be fetched first are bounded as well.
const (
	patience  = 2
	fetchTime = 40 * time.Second
)

// The scenes.
const (
	sceneRedis  = "redis"
	sceneBridge = "bridge"
	sceneExn    = "exn0"
)

// Scenes are the names of all.
func Scenes() []string { return []string{sceneRedis, sceneBridge, sceneExn} }

// Check finds what is impossible in the plan and says what to do instead.
func (p Plan) Check() error {
	if p.Length < 10*time.Millisecond || p.Length > time.Minute {
		return fmt.Errorf("--duration %v: a run takes from 10ms to a minute", p.Length)
	}
	return measure.CheckChoice(p.Scenes, Scenes(), p.Pairs)
}

// Takes is about how long the plan takes.
func (p Plan) Takes() (d time.Duration) {
	for _, s := range p.scenes() {
		d += s.takes(p)
	}
	return d
}

// A scene is a part that is shown.
type scene struct {
	name  string
	takes func(Plan) time.Duration
	play  func(*show, context.Context) error
}

// starting is about how long it takes to start and end the programs of a run.
const starting = 400 * time.Millisecond

func (p Plan) scenes() (chosen []scene) {
	run := func(runs int) func(Plan) time.Duration {
		return func(p Plan) time.Duration { return time.Duration(runs*p.Pairs) * (p.Length + starting) }
	}
	for _, s := range []scene{
		{sceneRedis, run(4), (*show).redis},
		{sceneBridge, run(2), (*show).bridge},
		{sceneExn, exn0Takes, (*show).exn0},
	} {
		if measure.Chosen(p.Scenes, s.name) {
			chosen = append(chosen, s)
		}
	}
	return chosen
}

// A show carries a plan out.
type show struct {
	Plan
	report   *report.Report
	progress *report.Progress
	cpus     [2]int
	program  string    // what answers requests: "redis", or "our program pump"
	until    time.Time // the end of the scene's time: none of its runs is made again after that, or begun but the first

	trials map[string]*workload.Trial // by the name of the test
}

// Run shows the plan and adds its rows to r, also those before an error. What cannot be shown is
// recorded and does not stop the rest; the error is that of ctx.
func (p Plan) Run(ctx context.Context, r *report.Report, progress *report.Progress) error {
	s := &show{Plan: p, report: r, progress: progress, cpus: twoCPUs(), trials: map[string]*workload.Trial{}}
	watch, err := newLoad()
	if err != nil {
		r.Fail("load of the machine", err)
	}
	r.Conditions = &report.Conditions{}
	s.progress.Doing("looking at the machine")
	if err := s.look(ctx); err != nil && ctx.Err() == nil {
		r.Fail("wake-up time", err)
	}
	for _, scene := range p.scenes() {
		if ctx.Err() != nil {
			break
		}
		s.progress.About(scene.name)
		s.until = time.Now().Add(patience * scene.takes(p))
		err := scene.play(s, ctx)
		var left missing
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.As(err, &left):
			r.Skip(scene.name, err)
		default:
			r.Fail(scene.name, remedy(err))
		}
	}
	if watch != nil {
		r.Conditions.Foreign = watch.foreign()
	}
	if ctx.Err() != nil {
		r.Partial = true
		return context.Cause(ctx)
	}
	r.Verdicts = Verdicts(r)
	return nil
}

// A missing is what the machine lacks, and the remedy: nothing has failed.
type missing struct{ error }

func (m missing) Unwrap() error { return m.error }

// remedy adds to an error what helps, where that is known.
func remedy(err error) error {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return fmt.Errorf("%w: free some space, or name another directory by TMPDIR", err)
	case errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%w: name a directory that can be written to by TMPDIR", err)
	}
	return err
}

// needsRoot says of an error of making namespaces what is missing, or nil.
func needsRoot(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return missing{errors.New("two hosts need root, for their network namespaces: sudo bin/exn-tun demo")}
	}
	if no, found := errors.AsType[path.NoNamespace](err); found {
		return missing{no}
	}
	return nil
}

// twoCPUs are the first two that this process may use, or any where there is one.
func twoCPUs() [2]int {
	if usable, err := measure.CPUs(); err == nil && len(usable) > 1 {
		return [2]int{usable[0], usable[1]}
	}
	return [2]int{measure.AnyCPU, measure.AnyCPU}
}
