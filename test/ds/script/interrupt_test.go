package script_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"exnet/test/ds"
)

// A handler that runs while a call spins on a lane ends it as it would have ended
// a sleep in the kernel.
func TestHandlersEndCallsThatSpin(t *testing.T) {
	library := ds.Library(t)
	program := ds.Build(t, "interrupt", nil, "interrupt.c")
	run := func(env ...string) string {
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), env...)
		text, err := cmd.Output()
		if err != nil {
			t.Fatalf("%v: %v\n%s", env, err, text)
		}
		return string(text)
	}
	for _, spin := range []string{"EXN_DS_SPIN_US=0", "EXN_DS_SPIN_US=100000"} { // asleep, and 100 ms of spinning first
		want, got := "", "not run"
		for tries := 0; got != want && tries < 3; tries++ { // a busy machine may be late with the timer, and the answer is there
			want, got = run(), run(ds.Preload(library, ds.Fabric(t), spin)...)
		}
		if got != want {
			t.Errorf("%s: TCP gives\n%sthe library\n%s", spin, want, got)
		}
	}
}

// Who sleeps in epoll_wait wakes, whatever another thread does to connections meanwhile.
func TestOthersTakeNoWakeUps(t *testing.T) {
	bothEnd(t, []string{ds.Build(t, "borrow", []string{"-pthread"}, "borrow.c")}, "EXN_DS_SPIN_US=0")
}

// bothEnd runs a program by TCP and with the library: it ends well within a minute.
func bothEnd(t *testing.T, program []string, settings ...string) {
	for name, env := range map[string][]string{"plain": nil, "library": ds.Preload(ds.Library(t), ds.Fabric(t), settings...)} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, program[0], program[1:]...)
			cmd.Env = append(os.Environ(), env...)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v (%v)\n%s", err, context.Cause(ctx), text)
			}
		})
	}
}

// What is ready is told in the order in which it got so.
func TestInOrder(t *testing.T) {
	program := ds.Build(t, "inorder", nil, "inorder.c")
	for name, env := range map[string][]string{"plain": nil, "library": ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")} {
		t.Run(name, func(t *testing.T) {
			var log strings.Builder
			cmd := exec.Command(program)
			cmd.Env, cmd.Stderr = append(os.Environ(), env...), &log
			text, err := cmd.Output()
			var wrong, beside, rounds int
			if _, e := fmt.Sscan(string(text), &wrong, &beside, &rounds); err != nil || e != nil {
				t.Fatalf("%v, %v: %s%s", err, e, text, log.String())
			}
			if wrong > rounds/10 || beside > rounds/10 {
				t.Errorf("another order in %d of %d rounds, and in %d where one was new", wrong, rounds, beside)
			}
			if env != nil && !strings.Contains(log.String(), "has lane") {
				t.Error("no lane")
			}
		})
	}
}

// ZCP-1: a withdrawal that finds the reader busy is finished.
func TestWithdrawnWhileBusy(t *testing.T) {
	program, library := ds.Build(t, "busy", nil, "busy.c"), ds.Library(t)
	busy := 0
	for range 8 { // a writer that looks by itself in time hides what is tested
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), "EXN_DS_ZCOPY=65536", "EXN_DS_WINDOW=16384", "EXN_DS_TEST_SWITCH=2")...)
		text, err := cmd.CombinedOutput()
		if cmd.ProcessState != nil && cmd.ProcessState.ExitCode() == 77 {
			continue
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		busy++
	}
	if busy == 0 {
		t.Skip("process_vm_readv is not permitted here, or Linux is older than 6.5")
	}
}

// What a peer's signal interrupts, and what follows, is as if it had not come.
func TestKicked(t *testing.T) {
	program := ds.Build(t, "kicked", nil, "kicked.c")
	run := func(env ...string) (text, log string) {
		var err strings.Builder
		cmd := exec.CommandContext(t.Context(), program)
		cmd.Env, cmd.Stderr = append(os.Environ(), env...), &err
		out, e := cmd.Output()
		if e != nil {
			t.Fatalf("%v: %v\n%s%s", env, e, out, err.String())
		}
		return string(out), err.String()
	}
	want, _ := run()
	got, log := run(ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
	if !strings.Contains(log, "has lane") {
		t.Fatalf("no lane, so that nothing is interrupted\n%s", log)
	}
	if got != want {
		t.Errorf("TCP gives\n%sthe library\n%s", want, got)
	}
}
