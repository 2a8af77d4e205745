package ofi

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"testing"
	"time"

	"exnet/fabric"
	"exnet/test/ofi"
)

// asProcess has the test binary be node 2 of the process that it names, until it is killed.
const asProcess = "EXN_TEST_NODE"

// process starts node 2 in a process of its own, which starts a program that
// outlives it, and returns when it is attached.
func process(t *testing.T) (node *exec.Cmd, child int) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), fmt.Sprint(asProcess, "=", os.Getpid()))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the process of node 2: %q, %v", line, err)
	}
	if _, err := fmt.Sscan(line, &child); err != nil {
		t.Fatalf("the process of node 2 says %q", line)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		syscall.Kill(child, syscall.SIGKILL)
	})
	return cmd, child
}

// beNode2 is the process.
func beNode2() {
	parent, _ := strconv.Atoi(os.Getenv(asProcess))
	n, err := Attach(Config{Provider: "tcp", Node: 2, Members: membersOf(parent, 0, 1, 2)})
	if err != nil {
		println(err.Error())
		os.Exit(1)
	}
	for len(n.Peers()) == 0 {
		time.Sleep(time.Millisecond)
	}
	outlives := exec.Command("sleep", "120")
	if err := outlives.Start(); err != nil {
		println(err.Error())
		os.Exit(1)
	}
	fmt.Println(outlives.Process.Pid)
	select {}
}

// TestKilledPeer: a peer that is killed while it is idle is noticed although a
// program that it had started lives on, and one that comes back under its ID
// and address begins anew.
func TestKilledPeer(t *testing.T) {
	if os.Getenv(asProcess) != "" {
		beNode2()
	}
	if !ofi.Rerun(t) {
		return
	}
	n, err := Attach(Config{Provider: "tcp", Node: 1, Members: membersOf(os.Getpid(), 0, 1, 2), Timeout: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	events := make(chan fabric.Event, 16)
	defer n.Watch(func(e fabric.Event) { events <- e })()
	for range 2 {
		cmd, _ := process(t)
		if e := <-events; !e.Joined || e.Node != 2 {
			t.Fatalf("%+v where node 2 joined", e)
		}
		cmd.Process.Kill()
		killed := time.Now()
		if e := <-events; e.Joined || !e.Crashed {
			t.Fatalf("%+v where node 2 crashed", e)
		}
		t.Logf("noticed after %v", time.Since(killed))
		cmd.Wait()
	}
	// One that comes back before anybody has noticed: nothing of the old
	// session is resumed.
	cmd, _ := process(t)
	<-events
	cmd.Process.Kill()
	cmd.Wait()
	process(t)
	if e := <-events; e.Joined || !e.Crashed {
		t.Errorf("%+v where the old node 2 crashed", e)
	}
	if e := <-events; !e.Joined {
		t.Errorf("%+v where the new node 2 joined", e)
	}
}
