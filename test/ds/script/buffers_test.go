package script_test

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/test/built"
	"exnet/test/ds"
)

// What a program writes out of registered buffers arrives, and their memory is the program's again
// when a write returns; buffers outlive connections, and forked children have them too.
func TestRegisteredBuffers(t *testing.T) {
	include := []string{"-I", ds.Headers()}
	program := ds.Build(t, "buffers", include, "buffers.c")
	library := ds.Library(t)
	older := library + ":" + ds.Build(t, "older.so", []string{"-shared", "-fPIC"}, "older.c")
	scenes := []string{"sizes", "interrupts", "death", "moves", "shutdowns", "forks", "ends", "cycles", "programs", "arguments"}
	slow := map[string]bool{"death": true, "moves": true, "forks": true, "cycles": true} // under a sanitizer
	run := func(name, program, scene string, env ...string) {
		t.Run(strings.TrimSpace(name+" "+scene), func(t *testing.T) {
			t.Parallel()
			cmd := exec.CommandContext(t.Context(), program, scene)
			cmd.Env = append(append(os.Environ(), "ASAN_OPTIONS=detect_leaks=0", "TSAN_OPTIONS=halt_on_error=1:exitcode=66"), env...)
			if scene == "sizes" { // it counts bytes of the lane, however slow the reader is
				cmd.Env = append(cmd.Env, "EXN_DS_STUCK_MS=0")
			}
			if text, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, text)
			}
		})
	}
	with := func(library string, settings ...string) []string {
		return ds.Preload(library, ds.Fabric(t), settings...)
	}
	for _, scene := range scenes {
		run("", program, scene, with(library)...)
		run("asleep", program, scene, with(library, "EXN_DS_SPIN_US=0")...)
	}
	run("switching", program, "interrupts", with(library, "EXN_DS_TEST_SWITCH=5")...)
	run("announced, too", program, "interrupts", with(library, "EXN_DS_ZCOPY=65536")...)

	// Without a library, without a lane, without a peer that takes them, without room:
	// buffers are ordinary memory.
	run("none", program, "plain")
	run("no lane", program, "plain", with(library, "EXN_DS=off")...)
	run("older peer", program, "plain", with(older)...)
	run("one window", program, "plain", with(library, "EXN_DS_WINDOWS=1")...)
	run("no memory", program, "plain", with(library, "EXN_DS_MEMORY=4194304")...)

	// Where the linker would decide what is there.
	fixed := ds.Build(t, "buffers-fixed", append([]string{"-no-pie", "-fno-pie"}, include...), "buffers.c")
	run("fixed", fixed, "sizes", with(library)...)
	run("fixed, none", fixed, "plain")
	static := ds.Build(t, "buffers-static", append([]string{"-static", "-Wl,@" + built.Path(t, "libextds.wrap")}, include...),
		"buffers.c", built.Path(t, "libextds.a"))
	run("static", static, "sizes", with("")...)

	for name, flags := range map[string][]string{
		"address": {"-fsanitize=address,undefined", "-fno-sanitize-recover=all"},
		"thread":  {"-fsanitize=thread", "-Wno-tsan"},
	} {
		program := ds.Build(t, "buffers-"+name, append(flags, include...), "buffers.c", ds.Object(t, flags...))
		for _, scene := range scenes {
			if testing.Short() && slow[scene] {
				continue
			}
			run(name, program, scene, with("")...)
		}
	}
}
