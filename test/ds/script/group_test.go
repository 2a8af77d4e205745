package script_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"exnet/test/ds"
	"exnet/test/ds/script"
)

// copied makes a file readable for everybody, whatever lies above the checkout.
func copied(t *testing.T, dir, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err := os.WriteFile(to, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return to
}

// Two users meet in a directory of their group, made as the README says, and one who
// is not in the group stays on TCP.
func TestGroupDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to become two users")
	}
	const group, alice, bob = 54321, 54322, 54323 // nobody has to know them
	dir, err := os.MkdirTemp("", "exn")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	fabric := filepath.Join(dir, "group")
	if err := os.Mkdir(fabric, 0o770); err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{os.Chmod(dir, 0o755), os.Chown(fabric, 0, group), os.Chmod(fabric, 0o770|os.ModeSetgid)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	by, library := copied(t, dir, player(t)), copied(t, dir, ds.Library(t))
	scripts, err := script.Parse("script warm\nopen\nwarm\n", script.Variant{Family: "4"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		group uint32 // of bob
		lanes bool
	}{{"members", group, true}, {"stranger", bob, false}} {
		t.Run(c.name, func(t *testing.T) {
			play(t, script.Stage{Player: by, Env: ds.Preload(library, fabric, "EXN_PEERS=group"),
				As: map[script.End]*syscall.Credential{script.A: {Uid: alice, Gid: group}, script.B: {Uid: bob, Gid: c.group}},
				Before: func(pids map[script.End]int) {
					for _, end := range both {
						if most := busiest(t, pids[end]); (most.VELO.Sum()+most.RMA.Sum() > 0) != c.lanes {
							t.Errorf("end %c: %+v, want lanes: %v", end, most, c.lanes)
						}
					}
				}}, scripts[0])
		})
	}
}
