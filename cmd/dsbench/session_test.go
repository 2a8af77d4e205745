package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/cmd/dsbench/measure"
	"exnet/cmd/dsbench/report"
)

// aServer is a server in a process of its own; it ends with the test, in order.
func aServer(t *testing.T, flags ...string) (cmd *exec.Cmd, port string) {
	t.Helper()
	cmd, _, stderr, _ := program(t, append([]string{"server", "--bind", "127.0.0.1", "--port", "0"}, flags...)...)
	cmd.Stdout = nil
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM) // if it is not gone
		cmd.Wait()                          // the exit code is looked at
		if code := cmd.ProcessState.ExitCode(); code != exitOK && !t.Failed() {
			t.Errorf("the server ended with %v: %s", cmd.ProcessState, stderr)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no server: %v: %s", err, stderr)
	}
	_, port, err = net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(line, "dsbench server: listening on ")))
	if err != nil {
		t.Fatal(err)
	}
	return cmd, port
}

// aClient runs a client to its end.
func aClient(t *testing.T, port string, flags ...string) (code int, r report.Report, said string) {
	t.Helper()
	flags = append([]string{"client", "127.0.0.1", "-p", port, "--json"}, flags...)
	for range 5 {
		var out, errs bytes.Buffer
		if slices.Contains(flags, "--ds") { // channels to other processes stay as long as a process
			cmd, stdout, stderr, _ := program(t, flags...)
			cmd.Run() // the exit code is returned
			out, errs, code = *stdout, *stderr, cmd.ProcessState.ExitCode()
		} else {
			code = run(flags, &out, &errs)
		}
		r = report.Report{}
		if code != exitUsage {
			r = parsed(t, out.Bytes())
		}
		said = errs.String()
		if !strings.Contains(said, "nothing arrived") && !slices.ContainsFunc(r.Rows, func(row report.Row) bool { return row.Value <= 0 }) {
			break // or the machine stood still, as long as all was to take
		}
	}
	return code, r, said
}

func TestClientAndServer(t *testing.T) {
	_, port := aServer(t)
	for _, c := range []struct {
		flags, test string
		size        int
		unit        report.Unit
	}{
		{"-t 0.1", "stream", 128 << 10, report.BitsPerSecond},
		{"-t 0.1 -R -l 1000", "stream-reverse", 1000, report.BitsPerSecond},
		{"-t 0.1 -P 3 --bidir --verify", "stream-3-bidir", 128 << 10, report.BitsPerSecond},
		{"-n 50K -P 2 -l 7 --verify", "stream-2", 7, report.BitsPerSecond},
		{"-n 3M -R", "stream-reverse", 128 << 10, report.BitsPerSecond},
		{"-t 0.1 --rr", "rr", 64, report.Nanoseconds},
		{"-n 100 --rr -l 1", "rr", 1, report.Nanoseconds},
		{"-n 3 --rr -l 1M", "rr", 1 << 20, report.Nanoseconds},
		{"-t 0.1 --crr --runs 2", "crr", 64, report.ConnectionsPS},
		{"-n 50 --crr -l 8", "crr", 8, report.ConnectionsPS},
		{"-t 0.1 --udp -l 60000", "datagrams", 60000, report.BitsPerSecond},
	} {
		code, r, said := aClient(t, port, strings.Fields(c.flags)...)
		if code != exitOK || len(r.Rows) != 1 {
			t.Errorf("%s: exit code %d, %d rows: %s", c.flags, code, len(r.Rows), said)
			continue
		}
		row := r.Rows[0]
		if row.Test != c.test || row.Size != c.size || row.Unit != c.unit || row.Value <= 0 {
			t.Errorf("%s: %+v", c.flags, row)
		}
		if (row.Percentiles != nil) != (c.test == "rr") {
			t.Errorf("%s: percentiles %v", c.flags, row.Percentiles)
		}
	}
}

// With --ds the same goes by lanes, if both are in one fabric directory, and the report
// says which bytes did: more than a few, but where a connection lasts no longer than it takes to get a lane
// on a busy machine, and then another one has more. A server serves those clients beside plain ones.
func TestClientOnLanes(t *testing.T) {
	fabric := filepath.Join(t.TempDir(), "fabric")
	_, port := aServer(t, "--fabric", fabric)
	for _, c := range []struct {
		flags, test string
		unit        report.Unit
		connections int
	}{
		{"-t T", "stream", report.BitsPerSecond, 1},
		{"-t T -R -l 1000 --verify", "stream-reverse", report.BitsPerSecond, 1},
		{"-t T -P 3 --bidir --verify", "stream-3-bidir", report.BitsPerSecond, 6},
		{"-n 300M -P 2 --runs 2", "stream-2", report.BitsPerSecond, 4},
		{"-n 300M -R", "stream-reverse", report.BitsPerSecond, 1},
		{"-t T --rr", "rr", report.Nanoseconds, 1},
		{"-n 5000 --rr -l 1", "rr", report.Nanoseconds, 1},
	} {
		var code int
		var r report.Report
		var said string
		for try := range 5 { // the slower the machine, the longer it takes until there are lanes
			flags := strings.Replace(c.flags, "T", fmt.Sprint(0.3*float64(int(1)<<try)), 1)
			code, r, said = aClient(t, port, append(strings.Fields(flags), "--ds", "--require", "--fabric", fabric)...)
			if len(r.Rows) != 1 || r.Rows[0].Lanes == nil || r.Rows[0].Lanes.Upgraded == c.connections && r.Rows[0].Lanes.Share() >= 0.1 {
				break
			}
		}
		if code != exitOK || len(r.Rows) != 1 {
			t.Errorf("%s: exit code %d, %d rows: %s", c.flags, code, len(r.Rows), said)
			continue
		}
		row := r.Rows[0]
		if row.Test != c.test || row.Path != onLanes || row.Unit != c.unit || row.Value <= 0 || (row.Percentiles != nil) != (c.test == "rr") {
			t.Errorf("%s: %+v", c.flags, row)
		}
		if l := row.Lanes; l == nil || l.Connections != c.connections || l.Upgraded != c.connections || l.Share() < 0.1 || !strings.Contains(row.Note, "% of the bytes by lanes") {
			t.Errorf("%s: %+v, %s", c.flags, l, row.Note)
		}
		if strings.Contains(said, "warning") {
			t.Errorf("%s: %s", c.flags, said)
		}
	}
	if code, r, said := aClient(t, port, "-n", "1M"); code != exitOK || r.Rows[0].Lanes != nil || r.Rows[0].Path != "tcp" {
		t.Errorf("a plain client: %d, %+v: %s", code, r.Rows, said)
	}
}

// What --ds asked for and did not get is said, and with --require fails.
func TestClientStaysOnTCP(t *testing.T) {
	fabric := filepath.Join(t.TempDir(), "fabric")
	_, port := aServer(t, "--fabric", fabric)
	for _, c := range []struct{ flags, fabric, why string }{
		{"-t 2", filepath.Join(t.TempDir(), "fabric"), "no peer in this fabric directory"}, // not where the server is
		{"-n 20 --crr --runs 2", fabric, "too short"},
	} {
		flags := append(strings.Fields(c.flags), "--ds", "--fabric", c.fabric)
		code, r, said := aClient(t, port, flags...)
		if code != exitOK || len(r.Rows) != 1 || !strings.Contains(said, "warning: not all connections left TCP") || !strings.Contains(said, c.why) {
			t.Errorf("%s: exit code %d, %+v: %s", c.flags, code, r, said)
			continue
		}
		if row := r.Rows[0]; row.Path != onTCP || row.Value <= 0 || row.Lanes.Upgraded != 0 || row.Lanes.LaneBytes != 0 || row.Lanes.TCPBytes == 0 {
			t.Errorf("%s: %+v, %+v", c.flags, row, row.Lanes)
		}
		code, r, said = aClient(t, port, append(flags, "--require")...)
		if code != exitFailed || len(r.Failures) != 1 || !strings.Contains(said, "--require: 0 of") {
			t.Errorf("%s --require: exit code %d, %+v: %s", c.flags, code, r.Failures, said)
		}
	}
}

// One client at a time: another is told so at once. Who hangs up, or is no client at
// all, does not keep the server from the next.
func TestServerIsBusyAndStays(t *testing.T) {
	fabric := filepath.Join(t.TempDir(), "fabric")
	_, port := aServer(t, "--fabric", fabric)
	for _, load := range []string{"-t 600", "-t 600 --ds", "-t 600 --ds -R", "-t 600 --ds --rr"} {
		killedBeside(t, port, append(strings.Fields(load), "--fabric", fabric)...)
	}

	for _, nonsense := range []string{"GET / HTTP/1.0\r\n\r\n", `{"do":"run","entry":-1}` + "\n", `{"do":"prepare","version":1,"contender":"shm/put"}` + "\n",
		`{"do":"prepare","version":1,"contender":"traffic/stream","params":{"streams":100000,"size":1}}` + "\n", strings.Repeat(" ", 2<<20)} {
		freely(t, port, func(c net.Conn) {
			io.WriteString(c, nonsense) // the server may hang up before it has all
			c.(*net.TCPConn).CloseWrite()
			answer, _ := io.ReadAll(c) // it may reset the connection
			if strings.Contains(string(answer), `"words"`) {
				t.Errorf("%.60q is answered with %q", nonsense, answer)
			}
		})
	}
	freely(t, port, func(net.Conn) {}) // waits for the last of them
	if code, _, said := aClient(t, port, "-n", "1K"); code != exitOK {
		t.Errorf("after all that a client ends with %d: %s", code, said)
	}
}

// killedBeside kills a client in the middle of a run, after another has been told that the
// server is busy with it.
func killedBeside(t *testing.T, port string, flags ...string) {
	t.Helper()
	freely(t, port, func(net.Conn) {}) // waits for the last of them
	long, _, _, _ := program(t, append([]string{"client", "127.0.0.1", "-p", port}, flags...)...)
	if err := long.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		code, _, said := aClient(t, port, "-n", "1")
		if code == exitFailed && strings.Contains(said, "busy with another client") {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("exit code %d beside another client: %s", code, said)
		}
	}
	long.Process.Kill()
	long.Wait() // it was killed
}

// freely calls f with a connection to a server that is not busy.
func freely(t *testing.T, port string, f func(net.Conn)) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; {
		code, _, said := aClient(t, port, "-n", "1K")
		if code == exitOK {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("a client ends with %d: %s", code, said)
		}
	}
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	f(c)
}

// A server that dies in the middle of a run is reported, not waited for.
func TestServerDies(t *testing.T) {
	fabric := filepath.Join(t.TempDir(), "fabric")
	for _, load := range []string{"-R", "--rr", "--udp", "-P2", "--ds", "--ds -R", "--ds --rr", "--ds --crr"} {
		cmd, _, stderr, _ := program(t, "server", "--bind", "127.0.0.1", "--port", "0", "--fabric", fabric)
		cmd.Stdout = nil
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		line, err := bufio.NewReader(out).ReadString('\n')
		if err != nil {
			t.Fatalf("%v: %s", err, stderr)
		}
		_, port, err := net.SplitHostPort(strings.TrimSpace(strings.TrimPrefix(line, "dsbench server: listening on ")))
		if err != nil {
			t.Fatal(err)
		}
		client, stdout, said, _ := program(t, append([]string{"client", "127.0.0.1", "-p", port, "-t", "600", "--json", "--fabric", fabric}, strings.Fields(load)...)...)
		if err := client.Start(); err != nil {
			t.Fatal(err)
		}
		// Until the run is under way the server has little to do.
		for busy := ""; busy != "busy"; {
			var errs bytes.Buffer
			run([]string{"client", "127.0.0.1", "-p", port, "-n", "1", "--json"}, io.Discard, &errs)
			if strings.Contains(errs.String(), "busy") {
				busy = "busy"
			}
		}
		cmd.Process.Kill()
		cmd.Wait() // it was killed
		client.Wait()
		r := parsed(t, stdout.Bytes())
		if code := client.ProcessState.ExitCode(); code != exitFailed || !r.Partial || len(r.Failures) != 1 {
			t.Errorf("%s: exit code %d, %+v: %s", load, code, r, said)
		}
	}
}

// Somebody else who listens there is no server; a server refuses a client of another version.
func TestStrangers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if c, err := l.Accept(); err == nil {
			io.WriteString(c, "SSH-2.0-OpenSSH\r\n")
			io.CopyN(io.Discard, c, 1)
			c.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	if code, r, said := aClient(t, port); code != exitFailed || len(r.Failures) != 1 || !strings.Contains(r.Failures[0].Error, "no dsbench server") {
		t.Errorf("exit code %d: %+v, %s", code, r, said)
	}
	_, port = aServer(t)
	c, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, `{"do": "prepare", "version": 999, "contender": "traffic/stream"}`)
	if line, err := bufio.NewReader(c).ReadString('\n'); err != nil || !strings.Contains(line, "the same on both hosts") {
		t.Errorf("%q, %v", line, err)
	}
}

func TestClientRefuses(t *testing.T) {
	for _, c := range []struct{ flags, want string }{
		{"-t 0", "from 0.01 seconds"}, {"-t NaN", "from 0.01 seconds"}, {"-n 0", "no amount"}, {"-n 9999999999G", "no amount"}, {"-l 1G", "at most 16777216"},
		{"-P 0", "choose 1 to 128"}, {"-P 129", "choose 1 to 128"}, {"--rr --udp", "can't be used together"}, {"--rr -R", "leave them out, or --rr"}, {"--udp -n 5", "use -t"},
		{"-R --bidir", "exclude each other"}, {"--udp -l 70000", "at most 65507"}, {"--crr -l 4", "carries a number"}, {"-p 0", "choose 1 to 65535"}, {"--runs 0", "1 or more"},
		{"--ds --udp", "TCP connections only"}, {"--require", "needs --ds"},
	} {
		code, _, said := aClient(t, "1", strings.Fields(c.flags)...)
		if code != exitUsage || !strings.Contains(said, c.want) {
			t.Errorf("%s: exit code %d: %s", c.flags, code, said)
		}
	}
	code, r, said := aClient(t, "1")
	if code != exitFailed || len(r.Failures) != 1 || !strings.Contains(said, "is dsbench server running there?") {
		t.Errorf("nobody listens: exit code %d: %s", code, said)
	}
}

// A server that is told to serve once does so, and its data come to the port it says.
func TestServerOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, data, _ := net.SplitHostPort(l.Addr().String())
	l.Close()
	cmd, port := aServer(t, "--once", "--data", data)
	if code, _, said := aClient(t, port, "-n", "1M"); code != exitOK {
		t.Errorf("exit code %d: %s", code, said)
	}
	if err := cmd.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Errorf("it does not end: %v", err)
	}
}

// A noisy run is made once more, and no more than that.
func TestNoisyRunIsRepeated(t *testing.T) {
	noisy := measure.Result{Follow: measure.Sample{Slower: 1}}
	for _, c := range []struct {
		runs  []measure.Result
		made  int
		noisy bool
	}{
		{[]measure.Result{{N: 1}}, 1, false},
		{[]measure.Result{noisy, {N: 2}}, 2, false},
		{[]measure.Result{noisy, noisy, {N: 3}}, 2, true},
	} {
		made := 0
		got, err := quietly(func() (measure.Result, error) { made++; return c.runs[made-1], nil })
		if err != nil || made != c.made || got.Noisy() != c.noisy || got.N != c.runs[made-1].N {
			t.Errorf("%v: %d made, %+v, %v", c.runs, made, got, err)
		}
	}
}

// A host may be named with the port of its server.
func TestClientAddress(t *testing.T) {
	for _, c := range []struct {
		host string
		port int
		want string // empty: refused
	}{
		{"127.0.0.1", defaultPort, "127.0.0.1:5210"}, {"127.0.0.1:1", defaultPort, "127.0.0.1:1"}, {"127.0.0.1:1", 1, "127.0.0.1:1"},
		{"127.0.0.1:1", 2, ""}, {"::1", 7, "[::1]:7"}, {"[::1]", 7, "[::1]:7"}, {"[::1]:9", defaultPort, "[::1]:9"}, {"host", 7, "host:7"},
	} {
		got, err := (&clientCommand{Host: c.host, Port: c.port}).address()
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%s, port %d: %q, %v, want %q", c.host, c.port, got, err, c.want)
		}
	}
}
