package gopeer_test

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

var background = context.Background()

// mixed are the scripts by hand of test/ds/script in which a Go program can play some ends, for
// each such set of ends, and for all calls of f.
func mixed(t *testing.T, f func(t *testing.T, v script.Variant, s script.Script, golang []script.End)) {
	files, err := filepath.Glob("../script/testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, v := range []script.Variant{{Family: "4", Warm: true}, {Family: "6", Warm: true}, {Family: "4"}, {Family: "m", Warm: true}} {
		if testing.Short() && v != (script.Variant{Family: "4", Warm: true}) {
			continue
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			scripts, err := script.Parse(string(text), v)
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range scripts {
				for _, ends := range [][]script.End{{script.A}, {script.B}, {script.A, script.B}} {
					if !slices.ContainsFunc(s.Steps, func(step script.Step) bool { return slices.Contains(ends, step.End) && !plays(step) }) &&
						!slices.ContainsFunc(s.Steps, func(step script.Step) bool { return step.End < script.A }) {
						name := v.String() + "/" + strings.TrimSuffix(filepath.Base(file), ".script") + "/" + s.Name + "/"
						for _, end := range ends {
							name += string(end)
						}
						t.Run(name, func(t *testing.T) { f(t, v, longer(s), ends) })
					}
				}
			}
		}
	}
}

// longer has both ends exchange messages until a Go end has taken a lane, too.
func longer(s script.Script) script.Script {
	s.Steps = slices.Clone(s.Steps)
	for i, step := range s.Steps {
		if w := step.Words; w[0] == "ping" || w[0] == "pong" {
			s.Steps[i].Words = []string{w[0], w[1], "1000", w[3]}
		}
	}
	return s
}

// DSS-1: programs of which one or both are in Go see the same by package directsockets and the
// library as by package net and TCP: values, errors, bytes and the order of all that.
func TestLikeTCP(t *testing.T) {
	library := ds.Library(t)
	player := ds.Build(t, "player", nil, "player.c", "calls.c", "sockets.c", "bytes.c", "ready.c", "processes.c", "ring.c")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var warm, lanes atomic.Int64
	mixed(t, func(t *testing.T, v script.Variant, s script.Script, golang []script.End) {
		t.Parallel()
		ds.Hurry(t)
		stage := script.Stage{Player: player, PlayerOf: map[script.End]string{}, EnvOf: map[script.End][]string{}, Env: []string{role + "=play", noLinger}}
		for _, end := range golang {
			stage.PlayerOf[end] = self
			stage.EnvOf[end] = []string{withNet + "=yes"}
		}
		play := func(on script.Stage) script.Log {
			log, err := script.Play(on, s)
			if err != nil {
				t.Fatal(err)
			}
			return log
		}
		want, got := play(stage), script.Log(nil)
		if strings.Contains(want.String(), "HUNG") {
			t.Fatalf("hangs by TCP:\n%s", want)
		}
		direct := stage
		direct.Env = append(ds.Preload(library, ds.Fabric(t), "EXN_DS_CALLS=2", "EXN_DS_STUCK_MS=600000"), stage.Env...)
		direct.EnvOf = map[script.End][]string{}
		for _, end := range golang {
			direct.EnvOf[end] = []string{"LD_PRELOAD="}
		}
		direct.Before = func(pids map[script.End]int) {
			for _, pid := range pids {
				if all, found := status.Of(pid); found {
					for _, p := range all.Sockets {
						if p.VELO.Read+p.VELO.Written+p.RMA.Read+p.RMA.Written > 0 {
							lanes.Add(1)
						}
					}
				}
			}
		}
		if v.Warm {
			warm.Add(1)
		}
		wants := []script.Log{want} // TCP may do something later on a busy machine
		for range 3 {
			got = play(direct)
			if slices.ContainsFunc(wants, func(want script.Log) bool { return script.Diff(want, got) == "" }) {
				return
			}
			wants = append(wants, play(stage))
			if script.Diff(wants[len(wants)-1], got) == "" {
				return
			}
		}
		t.Errorf("differs from TCP:\n%s", script.Diff(want, got))
	})
	t.Cleanup(func() {
		t.Logf("%d plays of warm connections, %d ends of all on lanes when they were over", warm.Load(), lanes.Load())
		if lanes.Load() < warm.Load()/2 && !ds.Late() {
			t.Error("too few lanes: this says little about them")
		}
	})
}
