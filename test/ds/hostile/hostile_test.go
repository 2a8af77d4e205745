package hostile_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"exnet/test/ds"
)

// patience is for one run of the program, which judges hangs itself.
const patience = 10 * time.Minute

// run runs the program for one seed, and returns how many hostile clients there
// were, and how many of them had memory to lie in.
func run(t *testing.T, program string, env []string, seed uint64) (clients, armed uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, fmt.Sprint(seed))
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("seed %d: %v\n%s", seed, err, text)
		return 0, 0
	}
	if _, err := fmt.Sscanf(string(text), "%d hostile clients, %d with memory", &clients, &armed); err != nil {
		t.Errorf("%v in %q", err, text)
	}
	return clients, armed
}

// The program itself must be right about TCP.
func TestPlain(t *testing.T) {
	run(t, ds.Build(t, "hostile", nil, "hostile.c"), nil, 1)
}

// zcopy has every second run lie about adverts, too.
func zcopy(seed uint64) []string {
	if seed%2 == 0 {
		return []string{"EXN_DS_ZCOPY=1", "EXN_DS_WINDOW=16384"}
	}
	return nil
}

// TRU-1: a hostile peer can end its own connections and nothing else.
func TestHostilePeer(t *testing.T) {
	library, delayed, program := ds.Library(t), ds.Delayed(t), ds.Build(t, "hostile", nil, "hostile.c")
	attack(t, program, func(t *testing.T, seed uint64) []string {
		library := library
		if seed%4 == 2 {
			library = delayed
		}
		return append(ds.Preload(library, ds.Fabric(t), fmt.Sprintf("EXN_DS_TEST_SEED=%d", seed)), zcopy(seed)...)
	})
}

// The same where a sanitizer watches what the victim touches.
func TestHostilePeerSanitized(t *testing.T) {
	flags := []string{"-fsanitize=address,undefined", "-fno-sanitize-recover=all"}
	program := ds.Build(t, "hostile-address", flags, "hostile.c", ds.Object(t, flags...))
	attack(t, program, func(t *testing.T, seed uint64) []string {
		return append(append(ds.Preload("", ds.Fabric(t)), "ASAN_OPTIONS=detect_leaks=0"), zcopy(seed)...)
	})
}

func attack(t *testing.T, program string, env func(*testing.T, uint64) []string) {
	var clients, armed atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		if !t.Failed() && armed.Load()*2 < clients.Load() {
			t.Errorf("only %d of %d hostile clients had memory to lie in", armed.Load(), clients.Load())
		}
	})
	for seed := range ds.Seeds(t, 4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			c, a := run(t, program, env(t, seed), seed)
			clients.Add(c)
			armed.Add(a)
		})
	}
}
