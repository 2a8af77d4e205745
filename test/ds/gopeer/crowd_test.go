package gopeer_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/directsockets/status"
	"exnet/test/ds"
)

const (
	megabyte = 1 << 20
	atOnce   = 16 // connections that move a lot at the same time
)

// crowdByte is what a connection sends at an offset, as in crowd.c.
func crowdByte(conn int, at uint64) byte { return byte(at*7 + at/4093 + uint64(conn)*13) }

// crowd is what crowd.c does, in Go: "serve", or PORT CONNS BUSY ROUNDS BYTES. Both
// say how many connections have lanes when their input ends.
func crowd(args []string) error {
	var mu sync.Mutex
	var all []*directsockets.Conn
	keep := func(c net.Conn) {
		mu.Lock()
		all = append(all, c.(*directsockets.Conn))
		mu.Unlock()
	}
	defer func() {
		upgraded := 0
		for _, c := range all {
			if s := c.Status(); s.Upgraded() {
				upgraded++
			} else {
				fmt.Fprintf(os.Stderr, "%v: %v, %v\n", s.Local, s.State, s.Reason)
			}
		}
		fmt.Println("upgraded", upgraded, "goroutines", runtime.NumGoroutine())
	}()
	if args[0] == "serve" {
		l, err := directsockets.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		fmt.Println("port", l.Addr().(*net.TCPAddr).Port)
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				keep(c)
				go func() {
					b := make([]byte, 4096)
					for {
						n, err := c.Read(b)
						if err != nil {
							return
						}
						if _, err := c.Write(b[:n]); err != nil {
							return
						}
					}
				}()
			}
		}()
		io.Copy(io.Discard, os.Stdin)
		return nil
	}
	conns, err1 := strconv.Atoi(args[1])
	bytes, err2 := strconv.Atoi(args[4])
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	sent := make([]uint64, conns)
	exchange := func(i, n int) error {
		c := all[i]
		piece := make([]byte, n)
		for k := range piece {
			piece[k] = crowdByte(i, sent[i]+uint64(k))
		}
		written := make(chan error, 1)
		go func() {
			_, err := c.Write(piece)
			written <- err
		}()
		got := make([]byte, n)
		if _, err := io.ReadFull(c, got); err != nil {
			return err
		}
		if string(got) != string(piece) {
			return fmt.Errorf("connection %d: wrong bytes after %d", i, sent[i])
		}
		sent[i] += uint64(n)
		return <-written
	}
	for i := range conns {
		c, err := directsockets.Dial("tcp", "127.0.0.1:"+args[0])
		if err != nil {
			return err
		}
		keep(c)
		for range 100 { // a first offer may find nobody
			if err := exchange(i, 64); err != nil {
				return err
			}
		}
	}
	failed := make(chan error, atOnce)
	for first := range atOnce {
		go func() {
			for i := first; i < conns; i += atOnce {
				if err := exchange(i, bytes); err != nil {
					failed <- err
					return
				}
			}
			failed <- nil
		}()
	}
	for range atOnce {
		if err := <-failed; err != nil {
			return err
		}
	}
	// Two may have missed each other; they look again after some calls and a second.
	// Both have the lane when what this one reads comes by it.
	for i, c := range all {
		for tries := 0; tries < 1000 && !c.Status().ReadsLane; tries++ {
			time.Sleep(5 * time.Millisecond)
			if err := exchange(i, 64); err != nil {
				return err
			}
		}
	}
	fmt.Println("exchanged 0")
	io.Copy(io.Discard, os.Stdin)
	return nil
}

// A member is a process of a crowd.
type member struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func join(t *testing.T, cmd *exec.Cmd) *member {
	t.Helper()
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = dieWithUs()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	return &member{cmd, stdin, bufio.NewScanner(stdout)}
}

// says waits for a line that begins with a word, and gives its numbers.
func (m *member) says(t *testing.T, word string) string {
	t.Helper()
	for m.lines.Scan() {
		if rest, ok := strings.CutPrefix(m.lines.Text(), word+" "); ok {
			return rest
		}
	}
	t.Fatalf("%v ended without %q", m.cmd.Args, word)
	return ""
}

// resident is the memory of a process: its own, and the files that it shares.
func resident(t *testing.T, pid int) (own, shared uint64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var name string
		var kib uint64
		fmt.Sscan(line, &name, &kib)
		switch name {
		case "RssAnon:":
			own = kib << 10
		case "RssShmem:":
			shared = kib << 10
		}
	}
	return own, shared
}

// Ten thousand connections of two processes all have lanes, each moves 1 MiB both
// ways, and that takes less than 2 GiB.
func TestCrowd(t *testing.T) {
	// Several channels in any case, and more members than an epoll set keeps looking at.
	conns, lanes, hot := 500, "EXN_DS_LANES=128", "EXN_DS_HOT=16"
	switch {
	case testing.Short():
		conns = 150
	case ds.Long():
		conns, lanes, hot = 10000, "EXN_DS_LANES=4096", "EXN_DS_HOT=128"
	}
	var files unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &files); err != nil || files.Max < uint64(conns)+2000 {
		t.Skipf("needs %d descriptors: %v", conns+2000, err)
	}
	library, program := ds.Library(t), ds.Build(t, "crowd", nil, "crowd.c")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, pair := range []string{"c-c", "go-c", "c-go", "go-go"} {
		t.Run(pair, func(t *testing.T) {
			fabric := ds.Fabric(t)
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			command := func(language string, args ...string) *exec.Cmd {
				if language == "go" {
					cmd := exec.CommandContext(ctx, self, args...)
					cmd.Env = append(append(os.Environ(), ds.Preload("", fabric, lanes)...), role+"=crowd", "LD_PRELOAD=")
					return cmd
				}
				cmd := exec.CommandContext(ctx, program, args...)
				cmd.Env = append(os.Environ(), ds.Preload(library, fabric, lanes, hot)...)
				return cmd
			}
			a, b, _ := strings.Cut(pair, "-")
			var was unix.Rlimit
			unix.Getrlimit(unix.RLIMIT_NOFILE, &was)
			syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: files.Max, Max: files.Max}) // they inherit it
			server := join(t, command(b, "serve"))
			port := server.says(t, "port")
			client := join(t, command(a, port, strconv.Itoa(conns), "100", "1", strconv.Itoa(megabyte)))
			client.says(t, "exchanged")
			var all, shared uint64
			for _, m := range []*member{server, client} {
				own, files := resident(t, m.cmd.Process.Pid)
				all, shared = all+own, max(shared, files) // of these files both have the same pages
			}
			onLanes := map[*member]int{}
			for _, m := range []*member{client, server} {
				if p, found := status.Of(m.cmd.Process.Pid); found {
					for _, s := range p.Sockets {
						if s.State == status.Lane {
							onLanes[m]++
						}
					}
				}
			}
			for _, m := range []*member{client, server} {
				upgraded := onLanes[m]
				m.stdin.Close()
				if m.cmd.Path == self {
					fmt.Sscan(m.says(t, "upgraded"), &upgraded)
				}
				if upgraded != conns {
					t.Errorf("%v: %d of %d connections have lanes", m.cmd.Args, upgraded, conns)
				}
				if err := m.cmd.Wait(); err != nil {
					t.Errorf("%v: %v", m.cmd.Args, err)
				}
			}
			t.Logf("%d connections: %d MiB private, %d MiB shared", conns, all>>20, shared>>20)
			if all+shared > 2<<30 {
				t.Error("more than 2 GiB")
			}
		})
	}
}

// A connection that was answered only after its last call gets its lane all the same.
func TestAnsweredLate(t *testing.T) {
	library, program := ds.Library(t), ds.Build(t, "late", nil, "late.c")
	found := func(m *member) bool {
		p, _ := status.Of(m.cmd.Process.Pid)
		for _, s := range p.Sockets {
			if s.State == status.Attached || s.State == status.Engaging || s.State == status.Lane {
				return true
			}
		}
		return false
	}
	try := func() bool {
		fabric := ds.Fabric(t)
		start := func(args ...string) *member {
			cmd := exec.CommandContext(t.Context(), program, args...)
			cmd.Env = append(os.Environ(), ds.Preload(library, fabric)...)
			return join(t, cmd)
		}
		server := start()
		client := start(server.says(t, "port"))
		client.says(t, "wrote")
		server.says(t, "answered")
		server.cmd.Process.Signal(unix.SIGSTOP)
		io.WriteString(client.stdin, "\n")
		client.says(t, "read")
		server.cmd.Process.Signal(unix.SIGCONT)
		upgraded := false
		for end := time.Now().Add(2 * time.Second); !upgraded && time.Now().Before(end); time.Sleep(time.Millisecond) {
			upgraded = found(client) && found(server)
		}
		for _, m := range []*member{client, server} {
			m.stdin.Close()
			if err := m.cmd.Wait(); err != nil {
				t.Error(err)
			}
		}
		return upgraded
	}
	for tries := 0; !try(); tries++ { // an offer is good for a second, which a busy machine may take
		if tries == 5 {
			t.Fatal("the connection got no lane")
		}
	}
}
