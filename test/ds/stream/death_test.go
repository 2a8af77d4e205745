package stream_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"exnet/test/ds"
)

// PRC-1: who survives gets the first bytes of the stream and then
// the end or a reset.
func TestDeath(t *testing.T) {
	library, program := ds.Library(t), program(t)
	forCheapSeeds(t, 30, func(t *testing.T, seed uint64) {
		fabric := ds.Fabric(t)
		run(t, program, ds.Preload(library, fabric, settings(seed)...), seed, "kill", side(seed))
	})
}

// A side that is stopped and goes on has missed nothing.
func TestStops(t *testing.T) {
	library, program := ds.Library(t), program(t)
	forSeeds(t, 10, func(t *testing.T, seed uint64) {
		run(t, program, ds.Preload(library, ds.Fabric(t), settings(seed)...), seed, "stop")
	})
}

// PRC-1: a server keeps no descriptor and no mapping of clients that died, and
// nothing stays behind when it ends too.
func TestDeathLeavesNothing(t *testing.T) {
	library, program := ds.Library(t), program(t)
	rounds := "50"
	switch {
	case ds.Long():
		rounds = "1000"
	case !testing.Short():
		rounds = "250"
	}
	before := sharedMemory(t)
	for seed := range uint64(2) {
		fabric := ds.Fabric(t)
		run(t, program, ds.Preload(library, fabric, settings(seed)...), seed, "kill", "client", rounds)
		// The kernel closes the last client's sockets one by one, and its listener may be
		// open when the server has ended. The next program removes what is left then.
		run(t, program, ds.Preload(library, fabric, settings(seed)...), seed)
		err := filepath.WalkDir(fabric, func(path string, d os.DirEntry, err error) error {
			if err == nil && !d.IsDir() && d.Name() != "board-1" { // one for all, for good
				t.Errorf("left in the fabric directory: %s", path)
			}
			return err
		})
		if err != nil {
			t.Error(err)
		}
	}
	for _, name := range sharedMemory(t) {
		if !slices.Contains(before, name) && strings.Contains(name, "exn") {
			t.Errorf("left in /dev/shm: %s", name)
		}
	}
}

func sharedMemory(t *testing.T) []string {
	entries, err := os.ReadDir("/dev/shm")
	if err != nil {
		t.Skip(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
