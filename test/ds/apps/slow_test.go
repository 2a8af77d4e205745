package apps_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/debroot"
	"exnet/test/ds"
	"exnet/test/netns"
)

// What FIONREAD counts can be read, also where the lane has bytes already and those before
// them are still on their way by TCP.
func TestUnreadOverSlowTCP(t *testing.T) {
	root, ns := debroot.Need(t, "iproute2"), netns.New(t)
	program := ds.Build(t, "slow", nil, "slow.c")
	if text, err := output(ns, root.Command(t.Context(), "ip", "link", "set", "lo", "mtu", "1500")); err != nil {
		t.Fatal(err, text)
	}
	slow := root.Command(t.Context(), "tc", "qdisc", "add", "dev", "lo", "root", "tbf", "rate", "4mbit", "burst", "4kb", "latency", "10s")
	if text, err := output(ns, slow); err != nil {
		t.Skipf("no slow interfaces here: %v: %s", err, text)
	}
	for _, env := range [][]string{nil, ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")} {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), env...)
		text, err := output(ns, cmd)
		if err != nil {
			t.Fatalf("%v: %v: %s", env, err, text)
		}
		if env != nil && !strings.Contains(text, " has lane ") {
			t.Errorf("all went by TCP, which says nothing: %s", text)
		}
	}
}
