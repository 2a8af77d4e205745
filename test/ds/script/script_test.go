package script_test

import (
	"testing"

	"exnet/test/ds"
	"exnet/test/ds/script"
)

func player(t testing.TB) string { return script.Player(t) }

func playerAs(t testing.TB, name string, flags ...string) string {
	return ds.Build(t, name, flags, script.PlayerSources...)
}

func play(t testing.TB, stage script.Stage, s script.Script) script.Log {
	t.Helper()
	log, err := script.Play(stage, s)
	if err != nil {
		t.Fatalf("%v\n%v", err, log)
	}
	return log
}
