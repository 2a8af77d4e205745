package gopeer_test

import (
	"context"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
	"exnet/test/tier"
)

var background = context.Background()

// mixed are the scripts by hand of test/ds/script in which a Go program can play some ends, for
// each such set of ends, and for all calls of f.
func mixed(t *testing.T, f func(t *testing.T, v script.Variant, s script.Script, golang []script.End)) {
	for i, v := range script.Variants {
		for name, s := range script.Written(t, v) {
			for _, ends := range [][]script.End{{script.A}, {script.B}, {script.A, script.B}} {
				if slices.ContainsFunc(s.Steps, func(step script.Step) bool {
					return step.End < script.A || slices.Contains(ends, step.End) && !plays(step)
				}) {
					continue
				}
				name := name + "/"
				for _, end := range ends {
					name += string(end)
				}
				kept := tier.Keep
				if i == 0 && len(ends) == 2 {
					kept = tier.Always
				}
				if kept(t, name) {
					t.Run(name, func(t *testing.T) { f(t, v, longer(s), ends) })
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
	player := script.Player(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var warm, lanes atomic.Int64
	mixed(t, func(t *testing.T, v script.Variant, s script.Script, golang []script.End) {
		t.Parallel()
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
		if lanes.Load() < warm.Load()/2 && !ds.Sampled() {
			t.Error("too few lanes: this says little about them")
		}
	})
}
