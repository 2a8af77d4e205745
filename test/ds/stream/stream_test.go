package stream_test

import (
	"context"
	"fmt"
	"iter"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"exnet/test/ds"
)

// patience is for one run of the program, which itself ends when there is no
// progress for 20 s.
const patience = 5 * time.Minute

var sources = []string{"stream.c", "side.c", "flow.c"}

func program(t testing.TB) string {
	return ds.Build(t, "stream", []string{"-I", ds.Headers()}, sources...)
}

// run runs the program for one seed, and returns what it says. Where it hands descriptors over,
// no writer may leave its lane before for want of windows, or of a reader: what is unread behind it cannot come
// by TCP ("Where a connection differs from TCP" in docs/options.md).
func run(t *testing.T, program string, env []string, seed uint64, mode ...string) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, append([]string{fmt.Sprint(seed)}, mode...)...)
	cmd.Env = append(os.Environ(), env...)
	if slices.Contains(mode, "hand") {
		cmd.Env = append(cmd.Env, "EXN_DS_WINDOWS=64", "EXN_DS_STUCK_MS=0")
	}
	cmd.WaitDelay = time.Second
	text, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("seed %d %s: %v\n%s", seed, strings.Join(mode, " "), err, text)
	}
	return text
}

// preloaded runs another program with the library, and says how many ends of connections got lanes, and what was said.
func preloaded(t *testing.T, program []string, settings ...string) (lanes int, text string, err error) {
	t.Helper()
	return preloadedWith(t, ds.Library(t), program, settings...)
}

// preloadedWith does that with another library.
func preloadedWith(t *testing.T, library string, program []string, settings ...string) (lanes int, text string, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program[0], program[1:]...)
	cmd.Env = append(os.Environ(), ds.Preload(library, ds.Fabric(t), append([]string{"EXN_DS_VERBOSE=1"}, settings...)...)...)
	said, err := cmd.CombinedOutput()
	return strings.Count(string(said), " has lane "), string(said), err
}

// forSeeds calls f in a subtest for each seed, forCheapSeeds for thousands.
func forSeeds(t *testing.T, n uint64, f func(t *testing.T, seed uint64)) { each(t, ds.Seeds(t, n), f) }
func forCheapSeeds(t *testing.T, n uint64, f func(t *testing.T, seed uint64)) {
	each(t, ds.CheapSeeds(t, n), f)
}

func each(t *testing.T, seeds iter.Seq[uint64], f func(t *testing.T, seed uint64)) {
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			t.Parallel()
			f(t, seed)
		})
	}
}

// The oracle itself must be right about TCP.
func TestPlain(t *testing.T) {
	program := program(t)
	forSeeds(t, 24, func(t *testing.T, seed uint64) { run(t, program, nil, seed) })
}

func TestPlainDeath(t *testing.T) {
	program := program(t)
	forSeeds(t, 16, func(t *testing.T, seed uint64) { run(t, program, nil, seed, "kill", side(seed)) })
}

// TCP itself ends a read with MSG_WAITALL early when its process is stopped, and
// the oracle has been seen to take that for a fault.
func TestPlainStops(t *testing.T) {
	program := program(t)
	forSeeds(t, 4, func(t *testing.T, seed uint64) { run(t, program, nil, seed, "stop") })
}

func TestPlainHandsOver(t *testing.T) {
	program := program(t)
	forSeeds(t, 8, func(t *testing.T, seed uint64) { run(t, program, nil, seed, "hand") })
}

func side(seed uint64) string {
	if seed%2 == 0 {
		return "client"
	}
	return "server"
}

// What a broken library does to the stream is noticed.
func TestBrokenIsNoticed(t *testing.T) {
	program := program(t)
	library := ds.Build(t, "broken.so", []string{"-shared", "-fPIC"}, "broken.c")
	for _, promise := range []string{"flipped-bit", "lost-byte", "again-is-end", "end-is-reset", "peek-takes", "spurious", "no-half-close", "sendfile-offset"} {
		t.Run(promise, func(t *testing.T) {
			t.Parallel()
			// Three connections, 5 MB; further seeds, since on a machine with much else to
			// do a reader may always find bytes, whatever it was told.
			const first, last = 10, 20
			for seed := first; seed <= last; seed++ {
				cmd := exec.CommandContext(t.Context(), program, fmt.Sprint(seed))
				cmd.Env = append(os.Environ(), "LD_PRELOAD="+library, "DS_BROKEN="+promise)
				if err := cmd.Run(); err != nil {
					return
				}
			}
			t.Errorf("seeds %d to %d passed", first, last)
		})
	}
}

// settings varies the library's own by the seed.
func settings(seed uint64) []string {
	s := []string{fmt.Sprintf("EXN_DS_TEST_SEED=%d", seed)}
	switch seed % 4 {
	case 1: // everything small, so that all limits are met
		s = append(s, "EXN_DS_CALLS=1", "EXN_DS_BYTES=1", "EXN_DS_SLOTS=16", "EXN_DS_WINDOW=16384", "EXN_DS_HOT=0")
	case 2:
		s = append(s, "EXN_DS_CALLS=1", "EXN_DS_BYTES=1", "EXN_DS_SPIN_US=0", "EXN_DS_WINDOWS=2", "EXN_DS_WINDOW_LEAST=16384")
	case 3:
		s = append(s, "EXN_DS_CALLS=3", "EXN_DS_BYTES=1000000", "EXN_DS_VELO_MAX=4096", "EXN_DS_HOT=0")
	}
	return s
}

// DSS-1, BCP-1: bytes, order, readiness and the end, with the library.
func TestPreloaded(t *testing.T) {
	library, program := ds.Library(t), program(t)
	var lane, tcp atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		t.Logf("%d bytes by lanes, %d by TCP", lane.Load(), tcp.Load())
		// Who has half-closed gets the rest by TCP, which is half of what is sent here.
		if lane.Load() < tcp.Load()/3 {
			t.Error("most bytes went by TCP: this says little about the library")
		}
	})
	forCheapSeeds(t, 40, func(t *testing.T, seed uint64) {
		text := string(run(t, program, ds.Preload(library, ds.Fabric(t), settings(seed)...), seed))
		if _, counts, ok := strings.Cut(text, "; "); ok {
			var l, b uint64
			if _, err := fmt.Sscanf(counts, "lane %d tcp %d", &l, &b); err != nil {
				t.Error(err)
			}
			lane.Add(l)
			tcp.Add(b)
		}
	})
}

// The same where any step of the library may be late, half of them with ZCopy.
func TestDelayed(t *testing.T) {
	library, program := ds.Delayed(t), program(t)
	forCheapSeeds(t, 12, func(t *testing.T, seed uint64) {
		how := settings
		if seed%2 == 0 {
			how = zcopy
		}
		run(t, program, ds.Preload(library, ds.Fabric(t), how(seed)...), seed)
	})
}

// zcopy has writes of some KiB copied by their readers, which the sizes of the window
// and of the oracle's calls leave room for.
func zcopy(seed uint64) []string {
	return append(settings(seed), "EXN_DS_WINDOW=16384", fmt.Sprintf("EXN_DS_ZCOPY=%d", []int{1, 5000, 60000}[seed%3]))
}

// ZCP-1: the same with many bytes copied once; also while directions go to TCP and back,
// when a connection goes back for good, and when a side is killed or stopped.
func TestZCopy(t *testing.T) {
	copiedOnce(t, 60, 10, zcopy)
}

// buffers lets writers have registered buffers, for all or for some of them.
func buffers(seed uint64) []string {
	return append(settings(seed), "EXN_DS_WINDOW=16384", fmt.Sprintf("EXN_DS_WINDOWS=%d", []int{64, 200, 1024}[seed%3]), "STREAM_BUFFERS=1")
}

// The same with registered buffers.
func TestBuffers(t *testing.T) {
	copiedOnce(t, 60, 30, buffers) // not all memory is a buffer, and not all writes block
}

// copiedOnce runs seeds in all ways with settings by which readers copy one byte in so many themselves, or more.
func copiedOnce(t *testing.T, seeds, one uint64, settings func(seed uint64) []string) {
	library, program := ds.Library(t), program(t)
	var all, once atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		t.Logf("%d bytes by lanes, %d of them copied once", all.Load(), once.Load())
		if once.Load() < all.Load()/one {
			t.Error("few bytes were copied once: this says little about it")
		}
	})
	forSeeds(t, seeds, func(t *testing.T, seed uint64) {
		env, mode := settings(seed), []string(nil)
		switch seed % 6 {
		case 1:
			env = append(env, "EXN_DS_TEST_SWITCH=20")
		case 2:
			mode = []string{"hand"}
		case 3:
			mode = []string{"kill", side(seed)}
		case 4:
			mode = []string{"stop"}
		}
		text := string(run(t, program, ds.Preload(library, ds.Fabric(t), env...), seed, mode...))
		if _, counts, ok := strings.Cut(text, "; lane "); ok {
			var l, b, z uint64
			if _, err := fmt.Sscanf(counts, "%d tcp %d zcopy %d", &l, &b, &z); err != nil {
				t.Error(err)
			}
			all.Add(l)
			once.Add(z)
		}
	})
}

// FBK-1: nothing is lost or reordered while directions go to TCP and back.
func TestSwitching(t *testing.T) {
	library, program := ds.Library(t), program(t)
	forCheapSeeds(t, 40, func(t *testing.T, seed uint64) {
		often := fmt.Sprintf("EXN_DS_TEST_SWITCH=%d", []int{2, 5, 20}[seed%3])
		run(t, program, ds.Preload(library, ds.Fabric(t), append(settings(seed), often)...), seed)
	})
}

// resumed counts how often an end got back to its lane, by what the library says.
func resumed(text string) (n int64) {
	had := map[string]bool{}
	for line := range strings.Lines(text) {
		if who, _, is := strings.Cut(line, " has lane "); is {
			if had[who] {
				n++
			}
			had[who] = true
		}
	}
	return n
}

// FBK-1: nothing is lost or reordered when a connection goes back for good, since
// stdio or another process might use it, or for as long as a program has it.
func TestHandsOver(t *testing.T) {
	library, program := ds.Library(t), program(t)
	var times, back atomic.Int64
	t.Cleanup(func() { // once all seeds are through
		t.Logf("%d times, %d times back on the lane", times.Load(), back.Load())
		if times.Load() == 0 && !ds.Sampled() {
			t.Error("nothing was handed over")
		}
	})
	forCheapSeeds(t, 40, func(t *testing.T, seed uint64) {
		text := string(run(t, program, ds.Preload(library, ds.Fabric(t), append(settings(seed), "EXN_DS_VERBOSE=1")...), seed, "hand"))
		back.Add(resumed(text))
		if _, count, ok := strings.Cut(text, "handed over "); ok {
			var n int64
			if _, err := fmt.Sscan(count, &n); err != nil {
				t.Error(err)
			}
			times.Add(n)
		}
	})
}

// sanitizers are the flags of the compiler by what the sanitizer watches.
var sanitizers = map[string][]string{
	"address": {"-fsanitize=address,undefined", "-fno-sanitize-recover=all"},
	"thread":  {"-fsanitize=thread", "-Wno-tsan"},
}

// DSS-1, FBK-1 once more, where a sanitizer watches the library.
func TestSanitized(t *testing.T) {
	for name, flags := range sanitizers {
		t.Run(name, func(t *testing.T) {
			program := ds.Build(t, "stream-"+name, append(flags[:len(flags):len(flags)], "-I", ds.Headers()), append(sources[:len(sources):len(sources)], ds.Object(t, flags...))...)
			forSeeds(t, 16, func(t *testing.T, seed uint64) {
				env := ds.Preload("", ds.Fabric(t), settings(seed)...)
				env = append(env, "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=halt_on_error=1:exitcode=66")
				switch {
				case seed%2 == 0:
					run(t, program, append(env, "EXN_DS_TEST_SWITCH=10"), seed)
				case seed%8 == 5:
					run(t, program, append(env, zcopy(seed)...), seed)
				case seed%8 == 3:
					run(t, program, append(env, buffers(seed)...), seed)
				case seed%4 == 1:
					run(t, program, env, seed, "hand")
				default:
					run(t, program, env, seed)
				}
			})
		})
	}
}

// Programs of musl have the same lanes, by the same library.
func TestMusl(t *testing.T) {
	library, program := ds.Library(t), ds.BuildMusl(t, "stream", []string{"-I", ds.Headers()}, sources...)
	var lane atomic.Uint64
	t.Cleanup(func() { // once all seeds are through
		if lane.Load() == 0 && !ds.Sampled() {
			t.Error("no byte went by a lane")
		}
	})
	forSeeds(t, 8, func(t *testing.T, seed uint64) {
		often := fmt.Sprintf("EXN_DS_TEST_SWITCH=%d", []int{0, 5, 20}[seed%3])
		for _, mode := range [][]string{{"hand"}, nil, {"kill", side(seed)}} {
			env := settings(seed)
			if mode == nil || mode[0] != "hand" { // see run
				env = append(env, often)
			}
			text := string(run(t, program, ds.Preload(library, ds.Fabric(t), env...), seed, mode...))
			if _, counts, ok := strings.Cut(text, "; lane "); ok {
				var n uint64
				if _, err := fmt.Sscan(counts, &n); err != nil {
					t.Error(err)
				}
				lane.Add(n)
			}
		}
	})
}

// Of a call that was left by longjmp nothing is done when its thread ends.
func TestLeaver(t *testing.T) {
	for name, program := range map[string]string{"glibc": ds.Build(t, "leaver", nil, "leaver.c"), "musl": ds.BuildMusl(t, "leaver", nil, "leaver.c")} {
		if lanes, text, err := preloaded(t, []string{program}); err != nil || lanes != 2 {
			t.Errorf("%s: %v, %d lanes\n%s", name, err, lanes, text)
		}
	}
}

// Locks that are held while a process forks are as good as new in its child.
func TestListed(t *testing.T) {
	for name, program := range map[string]string{"glibc": ds.Build(t, "listed", nil, "listed.c"), "musl": ds.BuildMusl(t, "listed", nil, "listed.c")} {
		if lanes, text, err := preloaded(t, []string{program}); err != nil || lanes != 2 {
			t.Errorf("%s: %v, %d lanes\n%s", name, err, lanes, text)
		}
	}
}

// Who is about to arm the doorbell of a channel for an epoll set finds memory there, even if another thread
// closes the last connection of that channel meanwhile.
func TestEnded(t *testing.T) {
	lanes, text, err := preloadedWith(t, ds.Tardy(t), []string{ds.Build(t, "ended", nil, "ended.c")}, "TARDY=arms")
	if err != nil || lanes < 2*30 {
		t.Errorf("%v, %d lanes\n%s", err, lanes, text)
	}
}

// Threads that are in calls while their process ends are not told that it has closed their sockets.
func TestExits(t *testing.T) {
	lanes, text, err := preloaded(t, []string{ds.Build(t, "exits", nil, "exits.c")})
	if err != nil || lanes < 200 || strings.Contains(text, "exits: ") {
		t.Errorf("%v, %d lanes\n%s", err, lanes, text)
	}
}
