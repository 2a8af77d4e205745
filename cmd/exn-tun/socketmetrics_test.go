package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"exnet/directsockets/status"
	"exnet/test/built"
)

func TestSocketMetrics(t *testing.T) {
	rows := socketRows{Problems: []string{"old"}, Sockets: []socketRow{
		{Program: "redis-server", State: "lane", TCP: status.Bytes{Read: 1, Written: 2}, VELO: status.Bytes{Read: 10, Written: 20}},
		{Program: "redis-server", State: "lane", VELO: status.Bytes{Read: 100}, RMA: status.Bytes{Written: 7}},
		{Program: `a"b\c`, State: "tcp", Reason: "option", TCP: status.Bytes{Written: 9}},
	}}
	var out bytes.Buffer
	rows.writeMetrics(&out)
	const want = `# HELP exn_ds_connections Connections by state, and the reason why they are on TCP, or were.
# TYPE exn_ds_connections gauge
exn_ds_connections{program="a\"b\\c",state="tcp",reason="option"} 1
exn_ds_connections{program="redis-server",state="lane",reason=""} 2
# HELP exn_ds_connection_bytes Bytes of the connections that are open now, by the way that they took.
# TYPE exn_ds_connection_bytes gauge
exn_ds_connection_bytes{program="a\"b\\c",path="rma",direction="read"} 0
exn_ds_connection_bytes{program="a\"b\\c",path="rma",direction="written"} 0
exn_ds_connection_bytes{program="a\"b\\c",path="tcp",direction="read"} 0
exn_ds_connection_bytes{program="a\"b\\c",path="tcp",direction="written"} 9
exn_ds_connection_bytes{program="a\"b\\c",path="velo",direction="read"} 0
exn_ds_connection_bytes{program="a\"b\\c",path="velo",direction="written"} 0
exn_ds_connection_bytes{program="redis-server",path="rma",direction="read"} 0
exn_ds_connection_bytes{program="redis-server",path="rma",direction="written"} 7
exn_ds_connection_bytes{program="redis-server",path="tcp",direction="read"} 1
exn_ds_connection_bytes{program="redis-server",path="tcp",direction="written"} 2
exn_ds_connection_bytes{program="redis-server",path="velo",direction="read"} 110
exn_ds_connection_bytes{program="redis-server",path="velo",direction="written"} 20
# HELP exn_ds_unreadable_processes Programs with the library whose connections cannot be read, such as those of another version.
# TYPE exn_ds_unreadable_processes gauge
exn_ds_unreadable_processes{} 1
`
	if out.String() != want {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
}

func TestMetricsAreServed(t *testing.T) {
	cmd := exec.Command(built.Path(t, "exn-tun"), "metrics", "--listen", "127.0.0.1:0")
	said, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill()
	line, err := bufio.NewReader(said).ReadString('\n')
	_, url, found := strings.Cut(strings.TrimSpace(line), "metrics are at ")
	if err != nil || !found {
		t.Fatalf("it says %q, %v", line, err)
	}
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	if kind := answer.Header.Get("Content-Type"); err != nil || !bytes.Contains(page, []byte("# TYPE exn_ds_connections gauge\n")) || !strings.HasPrefix(kind, "text/plain") {
		t.Errorf("%s, %v:\n%s", kind, err, page)
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}
