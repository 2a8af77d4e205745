package oracle

import (
	"slices"
	"strings"
	"testing"

	"exnet/test/ds/script"
)

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
	plain := script.Stage{Player: script.Player(t)}
	script.ByHand(t, 0, func(t *testing.T, s script.Script) {
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
	plain := script.Stage{Player: script.Player(t)}
	script.Generated(t, false, func(t *testing.T, s script.Script) {
		first := play(t, plain, s)
		text := first.String()
		if strings.Contains(text, "HUNG") {
			t.Fatalf("seed hangs over TCP:\n%s", text)
		}
		repeats(t, plain, s, first)
	})
}
