package apps_test

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"exnet/test/debroot"
)

// A server in Rust with tokio: sccache, which runs compilers for its clients and keeps
// what they make. A client asks once, and is answered once, by all that the compiler
// says: connections get a lane, but have given their bytes to TCP before.
func TestSccache(t *testing.T) {
	root := debroot.Need(t, "sccache", "gcc", "libc6-dev")
	const files, warnings = 3, 2000 // 40,000 took more than 90 s on a busy machine, on TCP too
	settings := []string{"EXN_DS_CALLS=1", "EXN_DS_BYTES=1"}
	compare(t, scenario{root: root, settings: settings, play: func(s *stage) string {
		port := freePort()
		dir := s.fresh("sources")
		for i := range files {
			text := fmt.Sprintf("int f%d(void) { return %[1]d; }\n%s", i, strings.Repeat("#warning so it says\n", warnings))
			if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.c", i)), []byte(text), 0o644); err != nil {
				s.Fatal(err)
			}
		}
		at := []string{"SCCACHE_SERVER_PORT=" + strconv.Itoa(port), "SCCACHE_DIR=" + s.fresh("kept"), "HOME=" + s.dir}
		sccache := func(args ...string) []byte {
			return s.run(nil, "env", slices.Concat(at, []string{"sh", "-c", `"$@" 2>&1`, "sh", "sccache"}, args)...)
		}
		s.serveIn(slices.Concat(at, []string{"SCCACHE_START_SERVER=1", "SCCACHE_NO_DAEMON=1", "SCCACHE_IDLE_TIMEOUT=0"}, s.server), port, "sccache")
		var out strings.Builder
		for _, turn := range []string{"made", "kept"} {
			for i := range files {
				object := filepath.Join(dir, "object.o")
				said := sccache("gcc", "-c", filepath.Join(dir, fmt.Sprintf("%d.c", i)), "-o", object)
				made, err := os.ReadFile(object)
				if err != nil {
					s.Error(err)
				}
				fmt.Fprintf(&out, "%s %d: %d bytes said, %x; %x\n", turn, i, len(said), sha256.Sum256(said), sha256.Sum256(made))
				os.Remove(object)
			}
		}
		for _, m := range regexp.MustCompile(`(?m)^(Compile requests executed|Cache hits|Cache misses|Cache errors) +\d+$`).FindAll(sccache("--show-stats"), -1) {
			fmt.Fprintf(&out, "%s\n", m)
		}
		return out.String()
	}})
}

// Rust's tokio and smol, each with itself and with the other, built from Debian's crates.
func TestRust(t *testing.T) {
	root := debroot.Need(t, "cargo", "librust-smol-dev", "librust-tokio-dev", "gcc", "libc6-dev")
	work := t.TempDir()
	const build = `cp -r "$1/." "$2" && cd "$2" && CARGO_HOME="$2/home" cargo build --quiet --offline --config 'source.crates-io.replace-with="debian"' --config 'source.debian.directory="/usr/share/cargo/registry"'`
	if out, err := root.Command(t.Context(), "sh", "-c", build, "sh", testdata(t, "rust"), work).CombinedOutput(); err != nil {
		t.Fatalf("cargo: %v\n%s", err, out)
	}
	echo := filepath.Join(work, "target", "debug", "echo")
	talk := func(servers, clients []string) func(s *stage) string {
		return func(s *stage) string {
			out := ""
			for _, server := range servers {
				port := freePort()
				s.serve(port, echo, "serve", server, strconv.Itoa(port))
				for _, client := range clients {
					out += string(s.run(nil, echo, "talk", client, strconv.Itoa(port), "20"))
				}
			}
			return out
		}
	}
	tokio, smol := []string{"tokio"}, []string{"smol"}
	t.Run("tokio", func(t *testing.T) {
		compare(t, scenario{root: root, lanes: true, play: talk(tokio, tokio)})
	})
	t.Run("smol", func(t *testing.T) {
		compare(t, scenario{root: root, lanes: true, play: talk([]string{"tokio", "smol"}, smol)})
	})
}
