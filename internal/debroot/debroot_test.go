package debroot

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// need opens packages, or skips the test.
func need(t *testing.T, packages ...string) *Root {
	t.Helper()
	root, err := Open(t.Context(), packages...)
	if errors.Is(err, ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// freePort returns a TCP port of the loopback interface that was free just now.
func freePort(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// awaitServer waits until somebody listens on a port.
func awaitServer(t *testing.T, port string) {
	t.Helper()
	const patience = 30 * time.Second // the machine may be busy with other packages
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no server after %v: %v", patience, err)
		}
	}
}

func run(t *testing.T, root *Root, program string, args ...string) string {
	t.Helper()
	out, err := root.Command(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", program, args, err, out)
	}
	return string(out)
}

func TestRedisServes(t *testing.T) {
	root := need(t, "redis-server", "iperf3")
	port := freePort(t)
	ctx, cancel := context.WithCancel(t.Context())
	server := root.Command(ctx, "redis-server", "--port", port, "--bind", "127.0.0.1", "--save", "", "--dir", t.TempDir())
	var log bytes.Buffer
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cancel()
		server.Wait()
		if t.Failed() {
			t.Logf("the server said:\n%s", &log)
		}
	}()
	awaitServer(t, port)

	if got := run(t, root, "redis-cli", "-p", port, "set", "key", "value"); got != "OK\n" {
		t.Errorf("set: %q, want OK", got)
	}
	if got := run(t, root, "redis-cli", "-p", port, "get", "key"); got != "value\n" {
		t.Errorf("get: %q, want value", got)
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", server.Process.Pid))
	if err != nil || !strings.HasPrefix(filepath.Base(exe), "redis") {
		t.Errorf("the command's process runs %q, %v, want the server itself", exe, err)
	}
}

func TestIperf3Measures(t *testing.T) {
	root := need(t, "redis-server", "iperf3")
	port := freePort(t)
	server := root.Command(t.Context(), "iperf3", "--server", "--one-off", "--port", port)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	// A first connection would be the one that --one-off serves, so the client
	// tries until it is let in.
	var out []byte
	var err error
	for range 100 {
		if out, err = root.Command(t.Context(), "iperf3", "--client", "127.0.0.1", "--port", port, "--bytes", "1M").CombinedOutput(); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		server.Process.Kill()
		t.Errorf("client: %v\n%s", err, out)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("server: %v", err)
	}
}

// TestWithoutOverlay runs what an unprivileged user would run.
func TestWithoutOverlay(t *testing.T) {
	root := *need(t, "redis-server", "iperf3")
	root.obstacle = errors.New("not wanted")
	for _, program := range []string{"iperf3", "redis-server"} {
		if out := run(t, &root, program, "--version"); out == "" {
			t.Errorf("%s --version says nothing", program)
		}
	}
	if path := root.Path("/etc/redis/redis.conf"); !exists(path) {
		t.Errorf("no file %s", path)
	}
}

func needOverlay(t *testing.T) *Root {
	t.Helper()
	root := need(t, "redis-server", "iperf3")
	if root.obstacle == nil {
		return root
	}
	mounts := exec.Command("unshare", "--mount", "true").Run() == nil
	if strings.Contains(read(t, "/proc/filesystems"), "\toverlay\n") && mounts {
		t.Fatalf("this machine should manage: %v", root.obstacle)
	}
	t.Skip(root.obstacle)
	return nil
}

func TestPackagesLieInPlace(t *testing.T) {
	root := needOverlay(t)
	if path := root.Path("/etc/redis/redis.conf"); path != "/etc/redis/redis.conf" {
		t.Errorf("Path: %s, want where the package has it", path)
	}
	run(t, root, "test", "-f", "/etc/redis/redis.conf", "-a", "-x", "/usr/bin/redis-server")
	if got, want := run(t, root, "cat", "/etc/passwd"), read(t, "/etc/passwd"); got != want {
		t.Errorf("/etc/passwd differs from the machine's:\n%s", got)
	}
}

func TestWritesArePrivate(t *testing.T) {
	root := needOverlay(t)
	name := fmt.Sprintf("exnet-test-%d", os.Getpid())
	outside := filepath.Join(t.TempDir(), name)
	run(t, root, "touch", "/etc/"+name, "/usr/"+name, "/var/"+name, outside)
	for _, dir := range []string{"/etc", "/usr", "/var", filepath.Join(root.dir, "etc")} {
		if path := filepath.Join(dir, name); exists(path) {
			t.Errorf("%s was written", path)
		}
	}
	if !exists(outside) {
		t.Errorf("%s was not written", outside)
	}
}

func TestOtherUsers(t *testing.T) {
	root := needOverlay(t)
	out := run(t, root, "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "redis-server", "--version")
	if !strings.HasPrefix(out, "Redis server") {
		t.Errorf("redis-server --version as nobody: %q", out)
	}
}

func TestContextKillsDescendants(t *testing.T) {
	root := need(t, "redis-server", "iperf3")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := root.Command(ctx, "sh", "-c", "sleep 1000 & echo started; wait")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var word string
	if _, err := fmt.Fscanln(out, &word); err != nil {
		t.Fatal(err)
	}
	cancel()
	var rest bytes.Buffer
	rest.ReadFrom(out) // ends when the sleeping grandchild is dead, too
	cmd.Wait()
}

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// A process that waits for the cache gives up when its context ends.
func TestLockEndsWithItsContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	unlock, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := lock(ctx, path)
		waiting <- err
	}()
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), path) {
		t.Errorf("it waited and got: %v", err)
	}
	unlock()
	again, err := lock(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	again()
}
