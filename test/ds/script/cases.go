package script

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"exnet/test/ds"
	"exnet/test/tier"
)

// Variants are the ways in which each script written by hand is played.
var Variants = []Variant{
	{Family: "4", Warm: true},
	{Family: "4"},
	{Family: "6", Warm: true},
	{Family: "m", Warm: true},
}

// PlayerSources are the C files of the program that plays one end of a script.
var PlayerSources = []string{"player.c", "calls.c", "sockets.c", "bytes.c", "ready.c", "processes.c", "ring.c"}

// Player builds that program and returns its path.
func Player(t testing.TB) string {
	t.Helper()
	return ds.Build(t, "player", nil, PlayerSources...)
}

// ByHand calls f in a subtest for each script of testdata in each variant, as far as the tier of
// the run plays them. The first variants, so many, are played by make test as a whole.
func ByHand(t *testing.T, whole int, f func(t *testing.T, s Script)) {
	t.Helper()
	for i, v := range Variants {
		for name, s := range Written(t, v) {
			kept := tier.Keep
			if i < whole {
				kept = tier.Always
			}
			if !kept(t, t.Name()+"/"+name) {
				continue
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				f(t, s)
			})
		}
	}
}

// Written yields the scripts of testdata in one variant, with the names that subtests have.
func Written(t testing.TB, v Variant) func(yield func(string, Script) bool) {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	files, err := filepath.Glob(filepath.Join(filepath.Dir(here), "testdata", "*.script"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	return func(yield func(string, Script) bool) {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			scripts, err := Parse(string(text), v)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, s := range scripts {
				if !yield(v.String()+"/"+strings.TrimSuffix(filepath.Base(file), ".script")+"/"+s.Name, s) {
					return
				}
			}
		}
	}
}

// Generated calls f in a subtest for each seed of the run, and for every second of them with a
// script of a wider kind, of the two kinds in turn.
func Generated(t *testing.T, switching bool, f func(t *testing.T, s Script)) {
	t.Helper()
	one := func(seed uint64) {
		v := Variants[seed%uint64(len(Variants))]
		v.Switching = switching
		s := Generate(seed, 60, v)
		t.Run(fmt.Sprintf("%s-%v", s.Name, v), func(t *testing.T) {
			t.Parallel()
			f(t, s)
		})
	}
	for seed := range ds.CheapSeeds(t, 10) {
		one(seed)
		if seed%2 == 0 && seed < WideFrom && !ds.SeedsNamed() {
			one(WideFrom*(1+seed/2%2) + seed/2)
		}
	}
}
