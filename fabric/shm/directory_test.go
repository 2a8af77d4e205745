package shm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
	fabricdir "exnet/fabric/dir"
	"exnet/test/netns"
)

// Bad input gives a clear error that names the cause and the remedy, and leaves nothing behind.
func TestBadDirectory(t *testing.T) {
	write := func(t *testing.T, name, text string) {
		t.Helper()
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, dir string)
		is      error
		words   []string
	}{
		"open to all":     {func(t *testing.T, dir string) { mkdir(t, dir, 0o777) }, nil, []string{"mode 0777", "chmod 0700"}},
		"readable by all": {func(t *testing.T, dir string) { mkdir(t, dir, 0o705) }, nil, []string{"mode 0705", "chmod 0700"}},
		"a file":          {func(t *testing.T, dir string) { write(t, dir, "") }, nil, []string{"not a directory"}},
		"no parent": {func(t *testing.T, dir string) {
			if err := os.Remove(filepath.Dir(dir)); err != nil {
				t.Fatal(err)
			}
		}, os.ErrNotExist, []string{"fabric directory"}},
		"somebody's files": {func(t *testing.T, dir string) {
			mkdir(t, dir, 0o700)
			write(t, filepath.Join(dir, "thesis.tex"), "")
		}, nil, []string{`"thesis.tex"`, "empty or new directory"}},
		"another marker": {func(t *testing.T, dir string) {
			mkdir(t, dir, 0o700)
			write(t, filepath.Join(dir, markerFile), "silk")
		}, nil, []string{"not a fabric's", "another directory"}},
		"another version": {func(t *testing.T, dir string) {
			mkdir(t, dir, 0o700)
			write(t, filepath.Join(dir, markerFile), `{"exnet fabric": 99}`)
		}, nil, []string{"format 99", "speaks 1", "same version"}},
		"ID in use": {func(t *testing.T, dir string) { attach(t, dir, 3) }, fabric.ErrInUse,
			[]string{"node ID 3", fmt.Sprintf("pid %d", os.Getpid()), "choose another"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(mkdir(t, filepath.Join(t.TempDir(), "x"), 0o700), "fabric")
			c.prepare(t, dir)
			files, fds := listAll(filepath.Dir(dir)), len(openFiles(t))
			_, err := Attach(Config{Dir: dir, Node: 3})
			wantError(t, err, c.is, c.words...)
			if now := listAll(filepath.Dir(dir)); now != files && name != "ID in use" {
				t.Errorf("files before: %s, after: %s", files, now)
			}
			if now := len(openFiles(t)); now != fds {
				t.Errorf("%d descriptors before, %d after", fds, now)
			}
		})
	}
}

// Programs may have met in a directory before its first node comes.
func TestDirectoryOfSockets(t *testing.T) {
	for _, name := range []string{"ds", "ds-12-abc", ".ds-12-abc"} {
		dir := mkdir(t, filepath.Join(t.TempDir(), "fabric"), 0o700)
		mkdir(t, filepath.Join(dir, name), 0o700)
		attach(t, dir, 3)
	}
}

func mkdir(tb testing.TB, dir string, mode os.FileMode) string {
	tb.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		tb.Fatal(err)
	}
	if err := os.Chmod(dir, mode); err != nil {
		tb.Fatal(err)
	}
	return dir
}

func listAll(dir string) string {
	var names []string
	filepath.WalkDir(dir, func(path string, _ os.DirEntry, _ error) error {
		names = append(names, path)
		return nil
	})
	return strings.Join(names, " ")
}

// The node that made the directory removes it again, unless somebody else uses it.
func TestDiscard(t *testing.T) {
	there := func(dir string) bool { _, err := os.Stat(dir); return err == nil }
	discard := func(n *Node) {
		t.Helper()
		if err := n.Discard(); err != nil {
			t.Error(err)
		}
	}
	parent := t.TempDir()
	dir := filepath.Join(parent, "fabric")
	first := attach(t, dir, 1)
	if err := os.Mkdir(filepath.Join(dir, "empty"), 0o700); err != nil {
		t.Fatal(err)
	}
	second := attach(t, dir, 2)
	discard(first)
	if third := attach(t, dir, 3); !there(dir) || len(third.Peers()) != 1 {
		t.Error("it was taken away from another node")
	}
	discard(second)
	if !there(dir) {
		t.Error("it was taken away by who did not make it")
	}

	// Many that fail and some that do not, at the same time.
	dir = filepath.Join(parent, "busy")
	var all sync.WaitGroup
	for id := range fabric.NodeID(8) {
		all.Go(func() {
			for range 20 {
				n, err := Attach(Config{Dir: dir, Node: id})
				if err != nil {
					t.Error(err)
					return
				}
				if nodes, err := List(dir); err != nil || !slices.ContainsFunc(nodes, func(i NodeInfo) bool { return i.Node == id }) {
					t.Errorf("node %d is in no directory: %v, %v", id, nodes, err)
				}
				discard(n)
			}
		})
	}
	all.Wait()
	discard(attach(t, filepath.Join(parent, "alone"), fabric.NodeAny))
	os.RemoveAll(dir) // the last may not have been who made it
	if left := listAll(parent); len(left) > 0 && strings.Contains(fmt.Sprint(left), "gone") || there(filepath.Join(parent, "alone")) {
		t.Errorf("left behind: %v", left)
	}
}

func TestBadConfig(t *testing.T) {
	dir := fabricDir(t)
	_, err := Attach(Config{Dir: filepath.Join(dir, strings.Repeat("long/", 30)), Node: 0})
	wantError(t, err, nil, "too long", "shorter")
	attach(t, dir, fabric.MaxNodeID)
	_, err = Attach(Config{Dir: dir, Node: fabric.MaxNodeID})
	wantError(t, err, fabric.ErrInUse)
	// Unrelated files do not disturb a fabric.
	if err := os.WriteFile(filepath.Join(dir, "node-x.lock"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	attach(t, dir, fabric.NodeAny)
}

// A directory of another user: refused unless it is shared with a group.
func TestForeignDirectory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to make a directory of another user")
	}
	dir := mkdir(t, filepath.Join(t.TempDir(), "fabric"), 0o700)
	if err := os.Chown(dir, 12345, 12345); err != nil {
		t.Fatal(err)
	}
	_, err := Attach(Config{Dir: dir})
	wantError(t, err, nil, "uid 12345", "EXN_FABRIC", "2770", "EXN_PEERS=group")
	if err := os.Chmod(dir, 0o2770); err != nil {
		t.Fatal(err)
	}
	_, err = Attach(Config{Dir: dir})
	wantError(t, err, nil, "EXN_PEERS=group")
	t.Setenv(fabricdir.PeersVariable, "group")
	attach(t, dir, 0)
}

// as runs a process as another user, who can reach the test binary.
func as(uid, gid uint32) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uid, Gid: gid, NoSetGroups: false}
	}
}

// reachable makes a directory below /tmp that other users can enter, and in it
// a copy of the test binary that they can run.
func reachable(t *testing.T) (dir, binary string) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to act as other users")
	}
	dir, err := os.MkdirTemp("", "exnet-shm-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	text, err := os.ReadFile(os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	binary = filepath.Join(dir, "shm.test")
	if err := os.WriteFile(binary, text, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}

// Works without root, and users in the group of a directory meet.
func TestUsersAndGroups(t *testing.T) {
	base, binary := reachable(t)
	t.Setenv(fabricdir.PeersVariable, "group")
	dir := mkdir(t, filepath.Join(base, "fabric"), 0o2770)
	if err := os.Chown(dir, 12345, 777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o2770); err != nil { // chown cleared the bit
		t.Fatal(err)
	}
	user := func(uid, gid uint32) func(*exec.Cmd) {
		return func(cmd *exec.Cmd) { as(uid, gid)(cmd); cmd.Path, cmd.Args[0] = binary, binary }
	}
	first := start(t, user(12345, 777), "sleeper", dir)
	if s := first.line(); s != "0" {
		t.Fatalf("the owner says %q", s)
	}
	if s := start(t, user(12346, 777), "attach", dir).line(); s != "1 [0]" {
		t.Errorf("a member of the group says %q", s)
	}
	if s := start(t, user(12347, 778), "attach", dir).line(); !strings.Contains(s, "error:") || !strings.Contains(s, "permission denied") {
		t.Errorf("a stranger says %q", s)
	}
	// The ID of a dead node of another user can be taken over.
	first.kill()
	if s := start(t, user(12346, 777), "attach", dir).line(); s != "0 []" {
		t.Errorf("the successor of another user says %q", s)
	}
}

func TestNetworkNamespaces(t *testing.T) {
	a, b := netns.New(t), netns.New(t)
	dir := fabricDir(t)
	n := attach(t, dir, fabric.NodeAny)
	next := follow(t, n)
	for i, ns := range []*netns.NetNS{a, b} {
		var p *process
		ns.Do(t, func() { p = start(t, nil, "sleeper", dir) })
		if s := p.line(); s != fmt.Sprint(i+1) {
			t.Fatalf("node in namespace %d says %q", i, s)
		}
		if e := next(); e != (fabric.Event{Node: fabric.NodeID(i + 1), Joined: true}) {
			t.Fatalf("got %+v", e)
		}
	}
}

// limited runs a role under a resource limit.
func limited(resource int, value uint64) func(*exec.Cmd) {
	return func(cmd *exec.Cmd) {
		name := map[int]string{unix.RLIMIT_NOFILE: "nofile", unix.RLIMIT_FSIZE: "fsize", unix.RLIMIT_AS: "as"}[resource]
		cmd.Args = append([]string{"prlimit", fmt.Sprintf("--%s=%d", name, value), cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Err = exec.LookPath("prlimit")
	}
}

func TestLimits(t *testing.T) {
	if _, err := exec.LookPath("prlimit"); err != nil {
		t.Skip("needs prlimit (package util-linux)")
	}
	for name, c := range map[string]struct {
		resource int
		value    uint64
		words    []string
	}{
		"open files": {unix.RLIMIT_NOFILE, 9, []string{"open files", "ulimit -n"}},
		"file size":  {unix.RLIMIT_FSIZE, 65536, []string{"RLIMIT_FSIZE", "ulimit -f"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := fabricDir(t)
			s := start(t, limited(c.resource, c.value), "attach", dir).line()
			for _, w := range c.words {
				if !strings.Contains(s, w) {
					t.Errorf("%q does not say %q", s, w)
				}
			}
			if left := listAll(dir); strings.Contains(left, "node-") {
				t.Errorf("left behind: %s", left)
			}
		})
	}
}

// No space: a directory on a full file system of its own.
func TestNoSpace(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small file system")
	}
	base := t.TempDir()
	cmd := func(cmd *exec.Cmd) {
		script := `mount -t tmpfs -o size=4k,nr_inodes=2,mode=0700 none "$0" || exit 1; exec "$@"`
		cmd.Args = append([]string{"sh", "-c", script, base, cmd.Path}, cmd.Args[1:]...)
		cmd.Path, cmd.Err = exec.LookPath("sh")
		cmd.SysProcAttr.Unshareflags = unix.CLONE_NEWNS
	}
	s := start(t, cmd, "attach", base).line()
	if !strings.Contains(s, "no space left") || !strings.Contains(s, "free some space") {
		t.Errorf("got %q", s)
	}
}

func TestDefaultDir(t *testing.T) {
	t.Setenv("EXN_FABRIC", "/somewhere")
	if d := DefaultDir(); d != "/somewhere" {
		t.Error(d)
	}
	t.Setenv("EXN_FABRIC", "")
	t.Setenv("XDG_RUNTIME_DIR", "/run/user/7")
	if want, _ := fabricdir.Default(); DefaultDir() != want {
		t.Errorf("%s, want %s", DefaultDir(), want)
	}
}
