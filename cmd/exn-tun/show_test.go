package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"exnet/fabric"
	"exnet/fabric/shm"
)

func TestShowNodes(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "fabric")
	n, err := shm.Attach(shm.Config{Dir: dir, Node: 7})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	var stdout, stderr bytes.Buffer
	if code := run([]string{"show", "nodes", "--fabric", dir, "--json"}, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	var got struct {
		Fabric string
		Nodes  []struct {
			Node fabric.NodeID
			PID  int
		}
	}
	if err := json.Unmarshal(stdout.Bytes(), &got); err != nil {
		t.Fatalf("%s: %v", &stdout, err)
	}
	if got.Fabric != dir || len(got.Nodes) != 1 || got.Nodes[0].Node != 7 || got.Nodes[0].PID != os.Getpid() {
		t.Errorf("got %+v", got)
	}
	stdout.Reset()
	t.Setenv("EXN_FABRIC", dir)
	if code := run([]string{"show", "nodes"}, &stdout, &stderr); code != exitDone {
		t.Fatalf("exit code %d: %s", code, &stderr)
	}
	if lines := strings.Split(strings.TrimSpace(stdout.String()), "\n"); len(lines) != 2 || !strings.HasPrefix(lines[1], "7 ") {
		t.Errorf("got %q", &stdout)
	}
}
