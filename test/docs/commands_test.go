package docs

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/netns"
)

// patience is how long a block may take. It is far away: a line that never passes uses it up.
const patience = 4 * time.Minute

// A run is how a marked block is run.
type run struct {
	packages []string
	before   string            // commands, for what the document takes for granted
	ready    map[string]string // by how a line begins that stays in the background: what succeeds once it is ready
	expect   map[string]string // by how a line begins: what its output must match
}

var runs = map[string]run{
	"redis": {
		packages: []string{"redis-server"},
		// Its client spins if nobody listens yet; a reader is slower.
		ready: map[string]string{"exn-tun run -- redis-server": "grep -q ' 0A ' /proc/net/tcp"},
		expect: map[string]string{
			"exn-tun check":         "takes lanes|shared memory",
			"exn-tun show sockets":  `redis-server.* lane `,
			"exn-tun run --verbose": "GET: [1-9]",
		},
	},
	"exn0": {
		packages: []string{"iproute2", "iputils-ping", "iperf3"},
		expect: map[string]string{
			"ip netns exec blue iperf3": "bits/sec",
			"ip netns exec blue ping":   " 0% packet loss",
			"exn-tun show counters":     "tx_packets +[1-9]",
		},
	},
	"exn0 between blue and green": {
		packages: []string{"iproute2", "iputils-ping"},
		before:   "ip netns add blue\nip netns add green\n",
		expect:   map[string]string{"ip netns exec blue ping": " 0% packet loss"},
	},
	"policy": {},
}

// documents are those whose blocks must all have a mark.
var documents = []string{"README.md", "docs/operations.md"}

// A block is the code of a document.
type block struct {
	document, mark, language, code string
}

var fence = regexp.MustCompile("(?ms)(?:^<!-- ((?:not )?run: [^\n]*?) -->\n)?^```(\\w*)\n(.*?)^```$")

func blocks(document, text string) (all []block) {
	for _, m := range fence.FindAllStringSubmatch(text, -1) {
		all = append(all, block{document, m[1], m[2], m[3]})
	}
	return all
}

func readBlocks(t *testing.T) (all []block) {
	t.Helper()
	for _, name := range documents {
		text, err := os.ReadFile(filepath.Join("../..", name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, blocks(name, string(text))...)
	}
	return all
}

// Each block says whether it is run, and each way of running has a block.
func TestMarks(t *testing.T) {
	unused := maps.Clone(runs)
	for _, b := range readBlocks(t) {
		name, isRun := strings.CutPrefix(b.mark, "run: ")
		_, known := runs[name]
		switch why, isNot := strings.CutPrefix(b.mark, "not run: "); {
		case isRun && (known || name == goBlock):
			delete(unused, name)
		case isNot && len(why) > 3:
		default:
			t.Errorf("%s: a block is marked %q, want run with a known name, or not run with a reason:\n%s", b.document, b.mark, b.code)
		}
	}
	for name := range unused {
		t.Errorf("no block is run as %q", name)
	}
}

func TestBlocks(t *testing.T) {
	got := blocks("x.md", "a\n<!-- run: redis -->\n```\none\ntwo\n```\nb\n```go\nthree\n```\n<!-- not run: output -->\n```\n```\n")
	want := []block{{"x.md", "run: redis", "", "one\ntwo\n"}, {"x.md", "", "go", "three\n"}, {"x.md", "not run: output", "", ""}}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestCommands(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	bin := filepath.Dir(built.Path(t, "exn-tun"))
	built.Path(t, "libextds.so")
	for i, b := range readBlocks(t) {
		name, isRun := strings.CutPrefix(b.mark, "run: ")
		how, known := runs[name]
		if !isRun || !known {
			continue
		}
		t.Run(fmt.Sprintf("%s block %d %s", b.document, i, name), func(t *testing.T) {
			out, err := play(t, bin, how, b.code)
			t.Logf("%s", out)
			if err != nil {
				t.Error(err)
			}
		})
	}
}

// The test itself notices commands that fail, and output that is not what it should be.
func TestCommandsThatFail(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("namespaces need root")
	}
	bin := filepath.Dir(built.Path(t, "exn-tun"))
	for code, expect := range map[string]map[string]string{
		"exn-tun show sokets":        nil,
		"exn-tn show sockets":        nil,
		"exn-tun show sockets --jsn": nil,
	} {
		if out, err := play(t, bin, run{expect: expect}, code+"\n"); err == nil {
			t.Errorf("%q passes: %s", code, out)
		}
	}
	if out, err := play(t, bin, run{}, "exn-tun version\n"); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}

// play runs the lines of a block in namespaces of their own.
func play(t *testing.T, bin string, how run, code string) ([]byte, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	file := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(file, []byte(script(how, code)), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-e", file}
	cmd := exec.CommandContext(ctx, "unshare", args...)
	if len(how.packages) > 0 {
		cmd = debroot.Need(t, how.packages...).Command(ctx, "unshare", args...)
	}
	if cmd.Env == nil {
		cmd.Env = os.Environ()
	}
	path := ""
	for _, e := range cmd.Env {
		if value, found := strings.CutPrefix(e, "PATH="); found {
			path = value
		}
	}
	cmd.Env = append(cmd.Env, "PATH="+bin+":"+path, "LC_ALL=C", "TMPDIR="+t.TempDir())
	cmd.Dir = t.TempDir()
	out, err := os.CreateTemp(t.TempDir(), "out")
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err = netns.New(t).Start(cmd); err == nil {
		err = cmd.Wait()
	}
	said, readErr := os.ReadFile(out.Name())
	if readErr != nil {
		t.Fatal(readErr)
	}
	return said, err
}

// script is what the shell runs for the lines of a block. Usage errors and programs that do not
// exist end it; what else fails is tried again.
func script(how run, code string) string {
	var b strings.Builder
	b.WriteString(`mount -t tmpfs none /run
wrong() { # LINE CODE
	case $2 in 126|127) return 0;; 2) case $1 in *exn-tun*) return 0;; esac;; esac
	return 1
}
behind() { # LINE: in the background
	until eval "$1"; do
		code=$?
		if wrong "$1" $code; then return; fi
		sleep 0.1
	done
}
again() { # LINE PATTERN
	until out=$(eval "$1" 2>&1) && printf '%s\n' "$out" | grep -Eq -- "$2"; do
		code=$?
		if wrong "$1" $code; then printf '%s\nfailed with %s: %s\n' "$out" "$code" "$1"; exit 1; fi
		sleep 0.1
	done
	printf '$ %s\n%s\n' "$1" "$out"
}
`)
	b.WriteString(how.before)
	for line := range strings.Lines(code) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case line == "", strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, "export "), strings.HasPrefix(line, "wait "):
			b.WriteString(line + "\n")
		case strings.HasSuffix(line, " &"):
			fmt.Fprintf(&b, "behind %s &\n", quote(strings.TrimSuffix(line, " &")))
			for begins, ready := range how.ready {
				if strings.HasPrefix(line, begins) {
					fmt.Fprintf(&b, "until %s; do sleep 0.1; done\n", ready)
				}
			}
		default:
			pattern := ""
			for begins, want := range how.expect {
				if strings.HasPrefix(line, begins) {
					pattern = want
				}
			}
			fmt.Fprintf(&b, "again %s %s\n", quote(line), quote(pattern))
		}
	}
	return b.String()
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
