package script_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/test/ds"
	"exnet/test/ds/script"
)

// The promises that ccode/broken.c can break, and a script that notices.
var broken = map[string]string{
	"flipped-bit":       "small",
	"lost-byte":         "partial",
	"short-read":        "joined",
	"reset-is-end":      "close-unread",
	"end-is-reset":      "half-close",
	"again-is-end":      "nonblock",
	"hides-interrupts":  "read-interrupted",
	"peek-takes":        "peek",
	"waitall-ignored":   "waitall",
	"trunc-ignored":     "trunc",
	"no-signal":         "write-after-close",
	"pipe-is-reset":     "write-after-close",
	"sendfile-offset":   "sendfile",
	"no-rdhup":          "half-close",
	"no-hup":            "shutdown-order",
	"spurious":          "no-spurious",
	"edge-is-level":     "edge",
	"level-is-edge":     "level",
	"oneshot-stays":     "oneshot",
	"data-halved":       "data-untouched",
	"mod-ignored":       "level",
	"lowat-ignored":     "rcvlowat",
	"linger-ignored":    "linger-zero",
	"fionread-page":     "fionread-boundary",
	"close-is-shutdown": "close-one-of-two",
	"no-half-close":     "half-close-data",
}

// A library that breaks one promise of TCP must not pass.
func TestBrokenPromisesAreNoticed(t *testing.T) {
	program := player(t)
	library := ds.Build(t, "broken.so", []string{"-shared", "-fPIC"}, "broken.c")
	scripts := make(map[string]script.Script)
	files, _ := filepath.Glob("testdata/*.script")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := script.Parse(string(text), script.Variant{Family: "4"})
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range parsed {
			scripts[s.Name] = s
		}
	}
	for promise, name := range broken {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			s, ok := scripts[name]
			if !ok {
				t.Fatalf("no script %s", name)
			}
			want := play(t, script.Stage{Player: program}, s)
			got := play(t, script.Stage{
				Player:   program,
				Env:      []string{"LD_PRELOAD=" + library, "DS_BROKEN=" + promise},
				Patience: 2 * time.Second, // it may well hang
			}, s)
			if script.Diff(want, got) == "" {
				t.Errorf("%s did not notice:\n%s", name, got)
			}
		})
	}
}

// Any change of any line of a log is a difference.
func TestDiffSeesEveryChange(t *testing.T) {
	log := script.Log{{"a write c 10", "10"}, {"b read d 100", "10 bytes=0f"}, {"b poll 0 d in", "0"}}
	if diff := script.Diff(log, log); diff != "" {
		t.Errorf("a log differs from itself:\n%s", diff)
	}
	changed := func(i int, e script.Entry) script.Log {
		other := append(script.Log(nil), log...)
		other[i] = e
		return other
	}
	for name, other := range map[string]script.Log{
		"value":   changed(0, script.Entry{Step: "a write c 10", Outcome: "9"}),
		"bytes":   changed(1, script.Entry{Step: "b read d 100", Outcome: "10 bytes=0e"}),
		"step":    changed(2, script.Entry{Step: "b poll 0 d out", Outcome: "0"}),
		"shorter": log[:2],
		"longer":  append(log[:3:3], log[0]),
		"order":   {log[1], log[0], log[2]},
	} {
		if script.Diff(log, other) == "" {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// Shrinking keeps exactly what makes a script fail.
func TestShrinkFindsTheCulprits(t *testing.T) {
	s := script.Generate(1, 80, script.Variant{Family: "4"})
	first, last := s.Steps[3].String(), s.Steps[len(s.Steps)-1].String()
	tries := 0
	small := script.Shrink(s, func(s script.Script) bool {
		tries++
		text := s.String()
		return strings.Contains(text, first) && strings.Contains(text, last)
	})
	if len(small.Steps) != 2 {
		t.Errorf("kept %d steps, want 2:\n%s", len(small.Steps), small)
	}
	if tries > 10*len(s.Steps) {
		t.Errorf("took %d tries for %d steps", tries, len(s.Steps))
	}
}

func TestParseRefuses(t *testing.T) {
	for _, text := range []string{
		"a write c 1",                 // before the first script
		"script x\nz write c 1",       // no such end
		"script x\na&9 write c 1",     // no such thread
		"script x\na c=write 1",       // makes nothing
		"script x\na write c 1 @soon", // no time
		"script x\nopne",              // no macro
	} {
		if _, err := script.Parse(text, script.Variant{Family: "4"}); err == nil {
			t.Errorf("%q: no error", text)
		}
	}
}
