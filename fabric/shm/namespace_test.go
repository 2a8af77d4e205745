package shm

import (
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"exnet/fabric"
)

// A node in a container: a user of its own, processes of its own, a network of its
// own. All that it shares with others is the directory.
func TestNodeInOtherNamespaces(t *testing.T) {
	inside := func(cmd *exec.Cmd) {
		cmd.SysProcAttr.Cloneflags = unix.CLONE_NEWUSER | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}}
	}
	probe := exec.Command("/proc/self/exe", "-test.run=^$")
	probe.SysProcAttr = new(syscall.SysProcAttr)
	inside(probe)
	if err := probe.Run(); err != nil {
		t.Skip("needs a kernel that lets users make namespaces:", err)
	}

	v := newVictim(t, inside)
	v.alive()
	if peers := v.n.Peers(); !slices.Contains(peers, honestNode) {
		t.Errorf("the node in the container is not among %v", peers)
	}
	next := follow(t, v.n)
	v.honest.cmd.Process.Kill()
	for e := next(); e != (fabric.Event{Node: honestNode, Crashed: true}); e = next() {
		t.Logf("told before: %+v", e)
	}
}
