package control

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"exnet/fabric"
	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

const node fabric.NodeID = 7

func listen(t *testing.T, handlers map[string]Handler) (dir string, s *Server) {
	t.Helper()
	dir = t.TempDir()
	s, err := Listen(dir, node, handlers)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return dir, s
}

type sum struct{ A, B int }

// calculator answers the questions of the tests.
func calculator(c *Call) error {
	var in sum
	if err := c.Arguments(&in); err != nil {
		return err
	}
	if in.B < 0 {
		return errors.New("B is negative")
	}
	return c.Reply(in.A + in.B)
}

func TestAsk(t *testing.T) {
	dir, s := listen(t, map[string]Handler{"add": calculator})
	var got int
	a, err := Ask(t.Context(), dir, node, "add", sum{3, 4}, &got)
	if err != nil || got != 7 {
		t.Fatalf("got %d, %v", got, err)
	}
	if rest, err := io.ReadAll(a); len(rest) != 0 || err != nil {
		t.Errorf("after the reply: %q, %v", rest, err)
	}
	a.Close()
	for _, c := range []struct {
		command   string
		arguments any
		says      string
	}{
		{"add", sum{1, -1}, "B is negative"},
		{"add", map[string]int{"C": 1}, "unknown field"},
		{"add", "text", "arguments"},
		{"divide", nil, `does not know the command "divide"`},
		{"add", strings.Repeat("x", maxQuestion), "bytes"},
	} {
		if _, err := Ask(t.Context(), dir, node, c.command, c.arguments, &got); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s %v: error %v does not say %q", c.command, c.arguments, err, c.says)
		}
	}
	if _, err := Ask(t.Context(), dir, 8, "add", nil, &got); !errors.Is(err, ErrNobody) {
		t.Errorf("a node without a daemon: %v", err)
	}
	if nodes, err := Nodes(dir); err != nil || !slices.Equal(nodes, []fabric.NodeID{node}) {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	if s.Close(); len(files(t, dir)) != 0 {
		t.Errorf("left behind: %v", files(t, dir))
	}
}

func files(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Processes that may attach may ask, and no others.
func TestMode(t *testing.T) {
	for dirMode, want := range map[os.FileMode]os.FileMode{0o700: 0o600, 0o770: 0o660} {
		dir := t.TempDir()
		if err := os.Chmod(dir, dirMode); err != nil {
			t.Fatal(err)
		}
		s, err := Listen(dir, node, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		info, err := os.Stat(socketPath(dir, node))
		if err != nil || info.Mode().Perm() != want {
			t.Errorf("mode %v in a directory of mode %v, want %v (%v)", info.Mode(), dirMode, want, err)
		}
	}
}

// A socket that a killed daemon left behind answers nobody, and is replaced.
func TestLeftover(t *testing.T) {
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPath(dir, node), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	os.WriteFile(filepath.Join(dir, "exn-007.sock"), nil, 0o600)
	os.WriteFile(filepath.Join(dir, "exn-65535.sock"), nil, 0o600)
	if nodes, err := Nodes(dir); err != nil || !slices.Equal(nodes, []fabric.NodeID{node}) {
		t.Errorf("nodes %v, %v", nodes, err)
	}
	if _, err := Ask(t.Context(), dir, node, "add", nil, nil); !errors.Is(err, ErrNobody) {
		t.Errorf("got %v", err)
	}
	s, err := Listen(dir, node, map[string]Handler{"add": calculator})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	a, err := Ask(t.Context(), dir, node, "add", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	a.Close()
}

// A handler may go on writing after its reply, until the asker has gone.
func TestStream(t *testing.T) {
	ended := make(chan error, 1)
	dir, _ := listen(t, map[string]Handler{"count": func(c *Call) error {
		if err := c.Reply("counting"); err != nil {
			return err
		}
		for i := 0; c.Context.Err() == nil; i++ {
			if _, err := fmt.Fprintln(c, i); err != nil {
				break
			}
		}
		<-c.Context.Done()
		ended <- context.Cause(c.Context)
		return nil
	}})
	var said string
	a, err := Ask(t.Context(), dir, node, "count", nil, &said)
	if err != nil || said != "counting" {
		t.Fatalf("got %q, %v", said, err)
	}
	r := bufio.NewScanner(a)
	for i := range 1000 {
		if !r.Scan() || r.Text() != fmt.Sprint(i) {
			t.Fatalf("line %d: %q, %v", i, r.Text(), r.Err())
		}
	}
	a.Close()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Close ends a stream that nobody reads.
func TestCloseEndsStreams(t *testing.T) {
	writing := make(chan struct{})
	dir, s := listen(t, map[string]Handler{"flood": func(c *Call) error {
		c.Reply(nil)
		close(writing)
		for block := make([]byte, 1<<20); ; {
			if _, err := c.Write(block); err != nil {
				return err
			}
		}
	}})
	a, err := Ask(t.Context(), dir, node, "flood", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	<-writing
	s.Close()
	if _, err := io.Copy(io.Discard, a); err != nil && !errors.Is(err, net.ErrClosed) && !strings.Contains(err.Error(), "reset") {
		t.Error(err)
	}
}

// A cancelled question ends at once, even when nobody answers.
func TestCancel(t *testing.T) {
	asked := make(chan struct{})
	dir, _ := listen(t, map[string]Handler{"think": func(c *Call) error {
		close(asked)
		<-c.Context.Done()
		return nil
	}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-asked; cancel() }()
	if _, err := Ask(ctx, dir, node, "think", nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// An asker that wants no more still gets what the handler has to say.
func TestCancelledStream(t *testing.T) {
	dir, _ := listen(t, map[string]Handler{"tell": func(c *Call) error {
		if err := c.Reply(nil); err != nil {
			return err
		}
		<-c.Context.Done()
		_, err := io.WriteString(c, "the rest")
		return err
	}})
	ctx, cancel := context.WithCancel(t.Context())
	a, err := Ask(ctx, dir, node, "tell", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	cancel()
	if got, err := io.ReadAll(a); string(got) != "the rest" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// But it does not wait for that for ever.
func TestCancelledStreamHangs(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	dir, _ := listen(t, map[string]Handler{"hang": func(c *Call) error {
		err := c.Reply(nil)
		<-release
		return err
	}})
	defer close(release)
	ctx, cancel := context.WithCancel(t.Context())
	a, err := Ask(ctx, dir, node, "hang", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	cancel()
	if got, err := io.ReadAll(a); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %q, %v", got, err)
	}
}

func TestHostileQuestions(t *testing.T) {
	dir, _ := listen(t, map[string]Handler{"add": calculator})
	for question, says := range map[string]string{
		"\n":                                 "not a question",
		"GET / HTTP/1.1\n":                   "not a question",
		"[]\n":                               "not a question",
		"null\n":                             "version 1 of the control protocol, not 0",
		`{"exnet":2,"command":"add"}` + "\n": "version 1 of the control protocol, not 2",
		`{"exnet":1}` + "\n":                 "does not know the command",
		`{"exnet":1,"command":"add","arguments":[1]}` + "\n":             "arguments",
		`{"exnet":1,"command":["add"]}` + "\n":                           "not a question",
		strings.Repeat("[", maxQuestion+1):                               "more than",
		`{"exnet":1,"command":"add","arguments":{"A":1}}` + "\nand more": `"reply":1`,
		"":        "",
		"no line": "",
	} {
		conn, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: socketPath(dir, node), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		io.WriteString(conn, question)
		conn.CloseWrite()
		got, _ := io.ReadAll(conn) // a reset if the server did not read everything
		if !strings.Contains(string(got), says) || says == "" && len(got) > 0 {
			t.Errorf("%.50q: answer %q does not say %q", question, got, says)
		}
		conn.Close()
	}
	// Clients that ask nothing delay nobody.
	var idle []net.Conn
	for range maxCalls - 1 {
		conn, err := net.Dial("unix", socketPath(dir, node))
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() {
			var got int
			a, err := Ask(t.Context(), dir, node, "add", sum{i, i}, &got)
			if err != nil || got != 2*i {
				t.Errorf("got %d, %v", got, err)
				return
			}
			a.Close()
		})
	}
	all.Wait()
	for _, conn := range idle {
		conn.Close()
	}
}

func TestHostileAnswers(t *testing.T) {
	for text, says := range map[string]string{
		"":                               "closed the connection",
		`{"exnet":1,"reply":3}`:          "closed the connection",
		"hello\n":                        "is malformed",
		`{"exnet":1,"reply":"x"}` + "\n": "its reply is malformed",
		`{"exnet":9,"reply":3}` + "\n":   "version 9",
		`{"exnet":1,"error":"\u001b[2Jgone"}` + "\n": "[2Jgone",
	} {
		err := decodeAll(t, text)
		if err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "\x1b") {
			t.Errorf("%q: error %v does not say %q", text, err, says)
		}
	}
}

// decodeAll asks a server that answers with a text.
func decodeAll(t *testing.T, text string) error {
	t.Helper()
	dir := t.TempDir()
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: socketPath(dir, node), Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var liar sync.WaitGroup
	defer liar.Wait()
	liar.Go(func() {
		conn, err := l.AcceptUnix()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		if err := json.NewDecoder(conn).Decode(new(any)); err != nil {
			t.Error(err)
		}
		io.WriteString(conn, text)
	})
	var got int
	a, err := Ask(t.Context(), dir, node, "add", nil, &got)
	if err == nil {
		a.Close()
	}
	return err
}
