package apps_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// Exn-tun runs a server and a client, shows their connection, and says what
// would become of another one.
func TestTun(t *testing.T) {
	root := debroot.Need(t, "redis-server", "redis-tools", "python3")
	library, fabric, other := ds.Library(t), ds.Fabric(t), ds.Fabric(t)
	tun := built.Path(t, "exn-tun")
	s := &stage{T: t, scenario: scenario{root: root}, dir: t.TempDir(), ctx: t.Context(), watch: new(watch)}
	run := func(fabric string, command ...string) []string {
		return append([]string{"EXN_LIBRARY=" + library, tun, "run", "--fabric", fabric}, command...)
	}
	serve := func(command ...string) (port int) {
		port = freePort()
		s.serve(port, "env", append(command, "redis-server", "--port", strconv.Itoa(port), "--bind", "127.0.0.1", "--save", "")...)
		return port
	}
	upgrading, plain := serve(run(fabric, "--")...), serve()

	exnTun := func(args ...string) (string, int) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), tun, args...)
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
			t.Fatal(err)
		}
		return out.String() + errs.String(), cmd.ProcessState.ExitCode()
	}
	for _, c := range []struct {
		port   int
		fabric string
		code   int
		want   string
	}{
		{upgrading, fabric, 0, "a busy connection takes lanes: redis-server"},
		{upgrading, other, 6, "peer not in this fabric directory"},
		{plain, fabric, 6, "does not use the library"},
		{freePort(), fabric, 1, "refused"},
	} {
		if out, code := exnTun("check", "--fabric", c.fabric, fmt.Sprintf("127.0.0.1:%d", c.port)); code != c.code || !strings.Contains(out, c.want) {
			t.Errorf("check: exit code %d, want %d with %q:\n%s", code, c.code, c.want, out)
		}
	}

	client := func(port int, flags ...string) *exec.Cmd {
		command := append(run(fabric, flags...), "--", "redis-benchmark", "-p", strconv.Itoa(port), "-t", "get", "-c", "1", "-n", "1000000000", "-q")
		cmd := s.command(nil, "env", command...)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	type row struct {
		Program, State, Reads, Writes, Local, Peer, Reason, Fabric string
		VELO                                                       struct{ Read, Written uint64 }
	}
	// until gives the rows of this fabric once good holds for them.
	until := func(what string, good func(rows []row) bool) []row {
		t.Helper()
		for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
			out, code := exnTun("show", "sockets", "--json", "--fabric", fabric)
			var shown struct{ Sockets []row }
			if err := json.Unmarshal([]byte(out), &shown); err != nil || code != 0 {
				t.Fatalf("show sockets: exit code %d, %v:\n%s", code, err, out)
			}
			if good(shown.Sockets) {
				return shown.Sockets
			}
			if time.Since(begin) > patience() {
				t.Fatalf("%s: does not come; there is\n%s", what, out)
			}
		}
	}
	cmd := client(upgrading)
	end := sync.OnceFunc(func() {
		cmd.Cancel()
		cmd.Wait() // it was killed
	})
	defer end()
	rows := until("both ends on lanes", func(rows []row) bool {
		n := 0
		for _, r := range rows {
			if r.State == "lane" && r.Reads == "lane" && r.Writes == "lane" && r.VELO.Read > 1000 && r.VELO.Written > 1000 {
				n++
			}
		}
		return n == 2
	})
	if len(rows) != 2 || rows[0].Local != rows[1].Peer || rows[0].Peer != rows[1].Local || rows[0].Fabric != fabric {
		t.Errorf("the two ends are %+v", rows)
	}
	if out, code := exnTun("show", "sockets"); code != 0 || !strings.Contains(out, "redis-benchmark") || !strings.Contains(out, rows[0].Local) {
		t.Errorf("exit code %d:\n%s", code, out)
	}
	for _, want := range []string{
		`exn_ds_connections{program="redis-server",state="lane",reason=""} 1`,
		`exn_ds_connection_bytes{program="redis-benchmark",path="velo",direction="written"} `,
	} {
		if out, code := exnTun("metrics", "--fabric", fabric); code != 0 || !strings.Contains(out, want) {
			t.Errorf("metrics: exit code %d, want %q:\n%s", code, want, out)
		}
	}
	end()

	// A client that insists ends soon, and says why.
	var said bytes.Buffer
	port := freePort()
	s.serve(port, "python3", testdata(t, "pairs.py"), "serve", "threading", strconv.Itoa(port))
	insisting := s.command(nil, "env", append(run(fabric, "--require"), "--", "python3", testdata(t, "pairs.py"), "talk", "blocking", strconv.Itoa(port), "1", "1000000")...)
	insisting.Stderr, insisting.Stdout = &said, &said
	// Which errors its threads meet depends on where they are.
	if insisting.Run(); !bytes.Contains(said.Bytes(), []byte("[Errno ")) || !bytes.Contains(said.Bytes(), []byte("does not use the library")) {
		t.Errorf("--require against a plain server: %v\n%s", insisting.ProcessState, said.Bytes()[:min(2000, said.Len())])
	}
	left, err := os.ReadDir(fabric + "/ds")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range left {
		if strings.HasPrefix(e.Name(), "s-") {
			t.Errorf("%s is in the fabric directory, which needs no status", e.Name())
		}
	}
}
