package apps_test

import (
	"bufio"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
)

// Redis in one container and its benchmark in another, by the recipes of docs/operations.md:
// podman and crun with their filter of system calls, processes, mounts and /dev/shm of
// each container's own.
func TestPodman(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root, to mount for podman what it looks for")
	}
	root := debroot.Need(t, "podman", "crun", "uidmap", "catatonit", "nftables", "redis-server", "redis-tools")
	const may = `mount -t tmpfs exnet /run && mknod /run/null c 1 3 && : >/run/null && unshare --user --map-root-user --net --pid --fork true`
	if out, err := root.Command(t.Context(), "sh", "-c", may).CombinedOutput(); err != nil {
		t.Skipf("needs mounts, devices and user namespaces: %v: %s", err, out)
	}
	// By whom each case is played, and on what networks, says the script.
	for _, c := range []struct{ name, reason string }{
		{"read-only", ""},
		{"no-capabilities", ""},
		{"host", ""},
		{"users", ""},
		{"stranger", "no peer in this fabric directory"},
		{"mapped", ""},
		{"mapped-otherwise", "proof"},
		{"joined", ""},
		{"mapped-joined", ""},
		{"bridged", ""},
		{"users-bridged", ""},
		{"published", ""},
		{"rootless", ""},
		{"rootless-joined", ""},
	} {
		t.Run(c.name, func(t *testing.T) { inContainers(t, root, c.name, c.reason) })
	}
}

// inContainers plays a case of the script until there are lanes, or the reason why there
// are none.
func inContainers(t *testing.T, root *debroot.Root, name, reason string) {
	dir, err := os.MkdirTemp("", "exn") // podman takes short paths only
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	if err := os.Chmod(dir, 0o755); err != nil { // for who is not root
		t.Fatal(err)
	}
	own, fabric := filepath.Join(dir, "own"), filepath.Join(dir, "fabric")
	for _, path := range []string{own, fabric} {
		if err := os.Mkdir(path, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	script, library, tun := readable(t, dir, testdata(t, "podman.sh")), readable(t, dir, ds.Library(t)), readable(t, dir, built.Path(t, "exn-tun"))
	cmd := root.Command(t.Context(), "unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--net", "sh", script, name, own, fabric, library, tun)
	var errs strings.Builder
	cmd.Stderr = &errs
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		input.Close()
		if err := cmd.Wait(); err != nil && !t.Failed() {
			t.Errorf("%v", err)
		}
		if t.Failed() {
			t.Logf("podman.sh said:\n%.4000s", &errs)
		}
	}()
	if line, err := bufio.NewReader(output).ReadString('\n'); line != "up\n" {
		t.Fatalf("podman.sh: %q, %v", line, err)
	}

	w := &watch{fabric: fabric, sockets: make(map[socketKey]seen), pids: []int{cmd.Process.Pid}}
	for begin := time.Now(); time.Since(begin) < patience(); time.Sleep(25 * time.Millisecond) {
		w.look()
		const some = 1 << 16
		lanes, told := make(map[string]bool), false
		for _, s := range w.sockets {
			if s.VELO.Sum()+s.RMA.Sum() > some {
				lanes[s.program] = true
			}
			told = told || reason != "" && s.Reason.String() == reason && s.TCP.Sum() > some
		}
		switch {
		case reason == "" && lanes["redis-server"] && lanes["redis-benchmark"]:
			return
		case reason != "" && len(lanes) > 0:
			t.Fatalf("lanes, want none%s", w.reasons())
		case told:
			return
		}
	}
	t.Errorf("no lanes and not the reason %q either%s", reason, w.reasons())
}
