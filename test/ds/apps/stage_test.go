package apps_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"exnet/test/debroot"
	"exnet/test/ds"
)

// patience is for a scenario on one stage, which takes seconds, in a long run
// minutes.
func patience() time.Duration {
	if ds.Long() {
		return 15 * time.Minute
	}
	return 10 * time.Minute
}

// A scenario is what real programs do. It is played on plain TCP, then with the
// library at both ends and, without -short, at either end alone; what play returns
// must always be the same.
type scenario struct {
	root *debroot.Root

	// lanes says that with the library at both ends most bytes must go by lanes, also
	// those of each program that moves many, and at one end none, since no connection
	// has both ends at one program. The reasons of those that do not are shown in any case.
	lanes bool

	// among says that programs at one end talk to each other too, so that there are
	// lanes with the library at one end.
	among bool

	// bothOnly leaves out the library at one end, of what takes long.
	bothOnly bool

	settings []string // of the library
	user     uint32   // as whom the programs run; 0: as this process
	play     func(s *stage) string
}

// A stage runs the programs of a scenario, servers and clients with the
// library or without.
type stage struct {
	*testing.T
	scenario
	server, client []string // environment of either, empty for plain TCP
	dir            string   // for the scenario's files, kept between stages
	ctx            context.Context
	watch          *watch
}

const withoutLibrary = "plain" // the first stage

// compare plays a scenario on each stage.
func compare(t *testing.T, sc scenario) {
	t.Helper()
	dir := t.TempDir()
	for path, mode := range map[string]os.FileMode{filepath.Dir(dir): 0o755, dir: 0o777} { // other users work in it
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	run := func(name, fabric string, server, client []string) (result string, s *stage) {
		play := func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience())
			defer cancel()
			s = &stage{T: t, scenario: sc, server: server, client: client, dir: dir, ctx: ctx, watch: &watch{fabric: fabric}}
			defer s.watch.begin()()
			result = sc.play(s)
		}
		if t.Run(name, play); s == nil && name == withoutLibrary { // -run names another stage, which is compared with it
			play(t)
		}
		return result, s
	}
	want, _ := run(withoutLibrary, "", nil, nil)
	if t.Failed() {
		t.Fatal("the scenario fails without the library")
	}
	library := ds.Library(t)
	if sc.lanes { // which a reader that stands still for 100 ms, as on a busy machine, would lose for a while
		sc.settings = append([]string{"EXN_DS_STUCK_MS=2000"}, sc.settings...)
	}
	stages := []string{"both", "server", "client"}
	if testing.Short() || sc.bothOnly {
		stages = stages[:1]
	}
	for _, ends := range stages {
		fabric := ds.Fabric(t)
		if sc.user != 0 {
			library = readable(t, dir, library)
			if err := os.Chown(fabric, int(sc.user), int(sc.user)); err != nil {
				t.Fatal(err)
			}
		}
		env := ds.Preload(library, fabric, sc.settings...)
		var server, client []string
		if ends != "client" {
			server = env
		}
		if ends != "server" {
			client = env
		}
		got, s := run(ends, fabric, server, client)
		if s == nil {
			continue // -run leaves this stage out
		}
		if got != want {
			t.Errorf("%s: the result is\n%s\nwithout the library it is\n%s", ends, got, want)
		}
		lane, all := s.watch.bytes()
		t.Logf("%s: %d of %d bytes by lanes%s", ends, lane, all, s.watch.reasons())
		switch {
		case !sc.lanes:
		case ends == "both" && (lane*2 < all || all == 0):
			t.Errorf("%d of %d bytes by lanes, want more than half%s", lane, all, s.watch.reasons())
		case ends == "both" && len(s.watch.left()) > 0:
			t.Errorf("of %q most bytes went by TCP%s", s.watch.left(), s.watch.reasons())
		case ends != "both" && !sc.among && (lane > 0 || s.watch.tables == 0):
			t.Errorf("%s alone: %d bytes by lanes, want none, and %d looks at tables of the library, want some%s", ends, lane, s.watch.tables, s.watch.reasons())
		}
	}
}

// readable is a copy of a file where other users can read it.
func readable(t *testing.T, dir, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, filepath.Base(file))
	if err := os.WriteFile(path, text, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// command prepares a program of the root with an environment.
func (s *stage) command(env []string, program string, args ...string) *exec.Cmd {
	args = append([]string{program}, args...)
	if len(env) > 0 {
		args = append(append([]string{"env"}, env...), args...)
	}
	if s.user != 0 {
		id := strconv.Itoa(int(s.user))
		args = append([]string{"setpriv", "--reuid=" + id, "--regid=" + id, "--clear-groups"}, args...)
	}
	return s.root.Command(s.ctx, args[0], args[1:]...)
}

// serve starts a server and waits until it listens.
func (s *stage) serve(port int, program string, args ...string) *exec.Cmd {
	s.Helper()
	return s.serveIn(s.server, port, program, args...)
}

// serveBehind is serve for what a server of the stage is the client of, or talks to
// as to its like: it has the library when clients have.
func (s *stage) serveBehind(port int, program string, args ...string) *exec.Cmd {
	s.Helper()
	return s.serveIn(s.client, port, program, args...)
}

func (s *stage) serveIn(env []string, port int, program string, args ...string) *exec.Cmd {
	s.Helper()
	log, err := os.CreateTemp(s.dir, "server")
	if err != nil {
		s.Fatal(err)
	}
	defer log.Close()
	cmd := s.command(env, program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.Cleanup(func() {
		syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
			s.Errorf("%s does not end", program)
		}
		if s.Failed() {
			text, _ := os.ReadFile(log.Name())
			s.Logf("%s said:\n%.4000s", program, text)
		}
	})
	for begin := time.Now(); !listens(port); time.Sleep(5 * time.Millisecond) {
		select {
		case err := <-ended:
			ended <- err
			s.Fatalf("%s ended: %v", program, err)
		default:
		}
		if time.Since(begin) > patience() {
			s.Fatalf("%s does not listen on port %d", program, port)
		}
	}
	s.watch.follow(cmd.Process.Pid)
	return cmd
}

// run runs a client and returns what it wrote.
func (s *stage) run(input []byte, program string, args ...string) []byte {
	s.Helper()
	var stdout bytes.Buffer
	s.pipe(bytes.NewReader(input), &stdout, program, args...)
	return stdout.Bytes()
}

// pipe runs a client whose input or output is too large to be kept.
func (s *stage) pipe(stdin io.Reader, stdout io.Writer, program string, args ...string) {
	s.Helper()
	cmd := s.command(s.client, program, args...)
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = stdin, stdout, &stderr
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.watch.follow(cmd.Process.Pid)
	if err := cmd.Wait(); err != nil {
		s.Errorf("%s %s: %v\n%.2000s", program, strings.Join(args, " "), err, stderr.Bytes())
	}
}

// freePort finds a port below those that the kernel gives to clients: one of
// these might be taken until the server comes to it.
func freePort() int {
	for {
		if port := 20000 + rand.IntN(10000); !listens(port) {
			return port
		}
	}
}

// listens says whether somebody listens on a port. It does not connect: some
// servers serve one client and then end.
func listens(port int) bool {
	for _, path := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		f, err := os.Open(path)
		if err != nil {
			continue
		}
		lines := bufio.NewScanner(f)
		found := false
		for lines.Scan() {
			f := strings.Fields(lines.Text())
			const listening = "0A"
			if len(f) > 3 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				found = true
			}
		}
		f.Close()
		if found {
			return true
		}
	}
	return false
}

// fresh makes a directory anew: what a stage leaves there the next one does not find.
func (s *stage) fresh(name string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := errors.Join(os.RemoveAll(path), os.MkdirAll(path, 0o777), os.Chmod(path, 0o777)); err != nil {
		s.Fatal(err)
	}
	return path
}

func (s *stage) write(name, text string) string {
	s.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		s.Fatal(err)
	}
	return path
}
