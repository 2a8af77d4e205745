package stream_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"exnet/test/ds"
)

// Files that are sent often are read where the library has mapped them, and nothing of that can be
// noticed: not by who changes, closes or truncates them, and not by who has a use for SIGBUS.
func TestMappedFiles(t *testing.T) {
	program := ds.Build(t, "mapped", nil, "mapped.c")
	for name, dies := range map[string]bool{
		"changes": false, "race default": false, "race before": false, "race after": false, "race plain": false, "race blocked": false,
		"race ignored": false, "race unheeded": false, "fault before": false, "fault after": false, "fault plain": false,
		"fault default": true, "fault blocked": true, "fault ignored": true, "fault unheeded": true, "fault killed": true,
	} {
		for way, library := range map[string]string{"TCP": "", "lane": ds.Library(t)} {
			t.Run(name+" "+way, func(t *testing.T) {
				var env []string
				if library != "" {
					env = ds.Preload(library, ds.Fabric(t), "EXN_DS_VERBOSE=1")
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, append(strings.Fields(name), t.TempDir())...)
				cmd.Env = append(os.Environ(), env...)
				text, err := cmd.CombinedOutput()
				status, _ := cmd.ProcessState.Sys().(syscall.WaitStatus)
				if died := status.Signaled() && status.Signal() == syscall.SIGBUS; died != dies || (err != nil && !dies) {
					t.Errorf("%v\n%s", err, text)
				}
				if lanes := bytes.Count(text, []byte(" has lane ")); env != nil && lanes != 2 {
					t.Errorf("%d ends have a lane:\n%s", lanes, text)
				}
			})
		}
	}
}

// A map that is let go while others copy from it is unmapped by the last of them.
func TestMapsLetGo(t *testing.T) {
	for name, flags := range sanitizers {
		t.Run(name, func(t *testing.T) {
			program := ds.Build(t, "remapped-"+name, append(flags[:len(flags):len(flags)], "-I", ds.Headers()), "remapped.c", ds.Object(t, flags...))
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, t.TempDir())
			cmd.Env = append(os.Environ(), ds.Preload("", ds.Fabric(t), "ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0", "TSAN_OPTIONS=halt_on_error=1:exitcode=66:handle_sigbus=0")...)
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
}

// Connections to a peer share the bytes of files that are sent often: each reads what the file had when it was
// sent, whatever others send, change and read meanwhile, and also by the way back to TCP.
func TestShelved(t *testing.T) {
	for name, flags := range sanitizers {
		t.Run(name, func(t *testing.T) {
			program := ds.Build(t, "shelved-"+name, append(flags[:len(flags):len(flags)], "-I", ds.Headers()), "shelved.c", ds.Object(t, flags...))
			forSeeds(t, 3, func(t *testing.T, seed uint64) {
				// What TCP has of a file changes with it until it is read.
				changes, back := "1", "EXN_DS_TEST_SWITCH=0"
				if seed%3 == 0 {
					changes, back = "0", "EXN_DS_TEST_SWITCH=20"
				}
				ctx, cancel := context.WithTimeout(t.Context(), patience)
				defer cancel()
				cmd := exec.CommandContext(ctx, program, strconv.FormatUint(seed, 10), changes, t.TempDir())
				cmd.Env = append(os.Environ(), ds.Preload("", ds.Fabric(t), back, "ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0", "TSAN_OPTIONS=halt_on_error=1:exitcode=66:handle_sigbus=0")...)
				if text, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v\n%s", err, text)
				}
			})
		})
	}
}

// What goes back to TCP and does not fit there comes all the same, when its writer waits for something else.
func TestOwed(t *testing.T) {
	flags := sanitizers["address"]
	program := ds.Build(t, "owed", append(flags[:len(flags):len(flags)], "-I", ds.Headers()), "owed.c", ds.Object(t, flags...))
	for _, how := range []string{"sleep", "read", "poll", "epoll", "close"} {
		t.Run(how, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, how)
			cmd.Env = append(os.Environ(), ds.Preload("", ds.Fabric(t), "ASAN_OPTIONS=detect_leaks=0:handle_sigbus=0")...)
			var came, text bytes.Buffer
			cmd.Stdout, cmd.Stderr = &came, &text
			if err := cmd.Run(); err != nil || came.Len() != 200<<10-1 {
				t.Errorf("%v; %d bytes came\n%s", err, came.Len(), &text)
			}
		})
	}
}
