package hostile_test

import (
	"errors"
	"os/exec"
	"testing"

	"exnet/test/ds"
)

// DSS-4: what a peer in another network namespace shows is believed when it is
// true, and only then.
func TestProofAbroad(t *testing.T) {
	program := ds.Build(t, "abroad", []string{"-I", ds.Headers()}, "abroad.c", ds.Object(t))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(cmd.Environ(), ds.Preload("", ds.Fabric(t))...)
	text, err := cmd.CombinedOutput()
	const notPermitted = 77
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.ExitCode() == notPermitted {
		t.Skip("needs root to make network namespaces")
	}
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}

// Who owns the socket with the right ends has not the other end of this connection if the two have carried different things.
func TestProofFits(t *testing.T) {
	program := ds.Build(t, "fit", []string{"-I", ds.Headers()}, "fit.c", ds.Object(t))
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Env = append(cmd.Environ(), ds.Preload("", ds.Fabric(t))...)
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, text)
	}
}
