package script_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/test/ds"
	"exnet/test/ds/script"
)

// variants are how each script by hand is played: with -short as many of the first
// as a test says, else all of them.
var variants = []script.Variant{
	{Family: "4", Warm: true},
	{Family: "4"},
	{Family: "6", Warm: true},
	{Family: "m", Warm: true},
}

func player(t testing.TB) string {
	return playerAs(t, "player")
}

func playerAs(t testing.TB, name string, flags ...string) string {
	return ds.Build(t, name, flags, playerSources...)
}

var playerSources = []string{"player.c", "calls.c", "sockets.c", "bytes.c", "ready.c", "processes.c", "ring.c"}

// byHand calls f in a subtest for each script of testdata, in at least n variants.
func byHand(t *testing.T, n int, f func(t *testing.T, s script.Script)) {
	files, err := filepath.Glob("testdata/*.script")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	if !testing.Short() {
		n = len(variants)
	}
	for _, v := range variants[:n] {
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			scripts, err := script.Parse(string(text), v)
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			for _, s := range scripts {
				t.Run(v.String()+"/"+strings.TrimSuffix(filepath.Base(file), ".script")+"/"+s.Name, func(t *testing.T) {
					t.Parallel()
					ds.Hurry(t)
					f(t, s)
				})
			}
		}
	}
}

func play(t testing.TB, stage script.Stage, s script.Script) script.Log {
	t.Helper()
	log, err := script.Play(stage, s)
	if err != nil {
		t.Fatalf("%v\n%v", err, log)
	}
	return log
}

// A script is worth something only when TCP answers it in the same way again and
// none of its steps hangs. On a busy machine TCP may once do something later, such as
// growing a buffer.
func TestScriptsAreDeterministic(t *testing.T) {
	plain := script.Stage{Player: player(t)}
	byHand(t, 2, func(t *testing.T, s script.Script) {
		first := play(t, plain, s)
		if text := first.String(); strings.Contains(text, "HUNG") || strings.Contains(text, "unknown call") || strings.Contains(text, "EARLY") {
			t.Errorf("not as a script should be:\n%s", text)
		}
		repeats(t, plain, s, first)
		if testing.Verbose() {
			t.Logf("\n%s", first)
		}
	})
}

// repeats fails the test when TCP never answers s twice alike.
func repeats(t *testing.T, plain script.Stage, s script.Script, first script.Log) {
	t.Helper()
	const most = 5
	seen := []script.Log{first}
	for len(seen) < most {
		again := play(t, plain, s)
		if slices.ContainsFunc(seen, func(l script.Log) bool { return script.Diff(l, again) == "" }) {
			return
		}
		seen = append(seen, again)
	}
	t.Errorf("differs between plays over TCP:\n%s", script.Diff(first, seen[1]))
}

func TestGeneratedScriptsAreDeterministic(t *testing.T) {
	plain := script.Stage{Player: player(t)}
	generated(t, false, func(t *testing.T, s script.Script) {
		first := play(t, plain, s)
		text := first.String()
		if strings.Contains(text, "HUNG") {
			t.Fatalf("seed hangs over TCP:\n%s", text)
		}
		repeats(t, plain, s, first)
	})
}

// generated calls f in a subtest for each seed, and for every second of them one of a wider
// kind, of the two kinds in turn.
func generated(t *testing.T, switching bool, f func(t *testing.T, s script.Script)) {
	one := func(seed uint64) {
		v := variants[seed%uint64(len(variants))]
		v.Switching = switching
		s := script.Generate(seed, 60, v)
		t.Run(fmt.Sprintf("%s-%v", s.Name, v), func(t *testing.T) {
			t.Parallel()
			ds.Hurry(t)
			f(t, s)
		})
	}
	for seed := range ds.CheapSeeds(t, 10) {
		one(seed)
		if seed%2 == 0 && seed < script.WideFrom && !ds.SeedsNamed() {
			one(script.WideFrom*(1+seed/2%2) + seed/2)
		}
	}
}
