package apps_test

import (
	"bytes"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/debroot"
)

// Backends of PostgreSQL that end in the middle of a query or of a large answer, asked
// to (pg_terminate_backend) or killed, after which the server ends all others and
// begins anew. What clients are told, and that nothing committed is lost, must be as on
// TCP.
func TestPostgresBackendKilled(t *testing.T) {
	root := debroot.Need(t, "postgresql")
	try := 0
	compare(t, scenario{root: root, lanes: true, user: nobody, play: func(s *stage) string {
		try++
		port, pg := s.postgres("kill", try)
		sql := func(text string) string {
			return strings.TrimSpace(string(s.run(nil, "sh", pg("psql", "-h", "127.0.0.1", "-p", port, "-U", "nobody", "-qAtd", "postgres", "-c", text)...)))
		}
		// began waits until a session is where it is to be hit, and gives its process.
		began := func(name, state string) int {
			for s.ctx.Err() == nil {
				pid, err := strconv.Atoi(sql(fmt.Sprintf("select pid from pg_stat_activity where application_name = '%s' and %s", name, state)))
				if err == nil {
					time.Sleep(100 * time.Millisecond) // long enough to be looked at
					return pid
				}
			}
			s.Fatalf("session %s does not begin", name)
			return 0
		}
		const asleep = "wait_event = 'PgSleep'"
		terminate := func(name string) string {
			return sql(fmt.Sprintf("select pg_terminate_backend(pid) from pg_stat_activity where application_name = '%s'", name))
		}
		sql("create table kept (i int)")

		var out strings.Builder
		asked := newSession(s, port, pg, "asked", "select pg_sleep(100)")
		began("asked", asleep)
		fmt.Fprintf(&out, "terminated: %s\n", terminate("asked"))
		fmt.Fprintf(&out, "asked in a query: %s", asked.end())

		busy := newSession(s, port, pg, "busy", "copy (select repeat(md5(i::text), 30) from generate_series(1, 1000000000) i) to '/dev/null'")
		began("busy", "state = 'active' and query like 'copy%'")
		terminate("busy")
		fmt.Fprintf(&out, "asked in a copy of the server's own: %s", busy.end())

		answering := newSession(s, port, pg, "answering", `\o /dev/null`, "copy (select repeat(md5(i::text), 30) from generate_series(1, 1000000000) i) to stdout")
		began("answering", "state = 'active' and query like 'copy%'")
		terminate("answering")
		fmt.Fprintf(&out, "asked while it answers: %s", answering.end())

		open := newSession(s, port, pg, "open", "begin; insert into kept values (2)", "select pg_sleep(100)")
		bystander := newSession(s, port, pg, "bystander", "insert into kept values (1)", "select pg_sleep(100)")
		began("bystander", asleep)
		if err := syscall.Kill(began("open", asleep), syscall.SIGKILL); err != nil {
			s.Fatal(err)
		}
		fmt.Fprintf(&out, "killed: %sbystander: %s", open.end(), bystander.end())
		s.ready(port, pg)
		fmt.Fprintf(&out, "kept: %s\n", sql("select array_agg(i) from kept"))
		return out.String()
	}})
}

// A session is a psql that says what it is told, and how it ends.
type session struct {
	cmd  *exec.Cmd
	text bytes.Buffer
}

// newSession begins one that fetches much first, and then makes its statements. Of what
// it fetches only the digest is kept.
func newSession(s *stage, port string, pg func(string, ...string) []string, name string, statements ...string) *session {
	s.Helper()
	const fetch = `\o | sha256sum >&2
select repeat(md5(i::text), 300) from generate_series(1, 2000) i;
\o
`
	var n session
	n.cmd = s.command(append([]string{"PGAPPNAME=" + name}, s.client...), "sh", pg("psql", "-h", "127.0.0.1", "-p", port, "-U", "nobody", "-qAtd", "postgres")...)
	n.cmd.Stdin = strings.NewReader(fetch + strings.Join(statements, ";\n") + ";\nselect 'not reached';\n")
	n.cmd.Stdout, n.cmd.Stderr = &n.text, &n.text
	if err := n.cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.watch.follow(n.cmd.Process.Pid)
	return &n
}

func (n *session) end() string {
	err := n.cmd.Wait()
	return fmt.Sprintf("%v\n%s", err, n.text.Bytes())
}
