package exn

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/vishvananda/netlink"

	"exnet/test/built"
)

// startCapture records the node's frames from now on, if Options.Capture is set.
func (n *Node) startCapture() {
	if !n.fleet.opt.Capture {
		return
	}
	cmd := exec.Command(built.Path(n, "exn-tun"), "capture", "-w", n.captureFile(),
		"--fabric", n.fleet.Fabric, "--node", strconv.Itoa(n.ID))
	n.capture = n.launch("capture-"+strconv.Itoa(n.ID), cmd)
	for !bytes.Contains(n.capture.Said(), []byte("capturing on")) {
		n.capture.Alive()
	}
}

// StopCapture ends the capture of the node's frames and returns its file.
func (n *Node) StopCapture() string {
	n.Helper()
	n.capture.cmd.Process.Signal(syscall.SIGTERM)
	n.capture.Exit()
	return n.captureFile()
}

func (n *Node) captureFile() string {
	return filepath.Join(n.fleet.dir, "node-"+strconv.Itoa(n.ID)+".pcapng")
}

// evidence saves evidence of a failed test.
func (f *Fleet) evidence() {
	if !f.Failed() {
		return
	}
	dir := f.ArtifactDir()
	save := func(name string, data []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			f.Logf("cannot save evidence: %v", err)
		}
	}
	for _, n := range f.Nodes {
		name := "node-" + strconv.Itoa(n.ID)
		n.NS.Do(f, func() {
			if link, err := netlink.LinkByName(Link); err == nil {
				// cannot fail: only numbers
				text, _ := json.MarshalIndent(link.Attrs().Statistics, "", "  ")
				save(name+"-kernel.json", text)
			}
		})
		for _, file := range []string{"/proc/net/snmp", "/proc/net/netstat"} {
			if text, err := n.read(file); err == nil {
				save(name+"-"+filepath.Base(file), text)
			}
		}
		if n.daemon == nil {
			continue
		}
		if text, err := n.show(); err == nil {
			save(name+".json", text)
		} else {
			f.Logf("%v does not say what it did: %v", n, err)
		}
	}
	files, _ := filepath.Glob(filepath.Join(f.dir, "*.log")) // cannot fail: the pattern is valid
	captures, _ := filepath.Glob(filepath.Join(f.dir, "*.pcapng"))
	for _, path := range append(files, captures...) {
		if err := copyFile(filepath.Join(dir, filepath.Base(path)), path); err != nil {
			f.Logf("cannot save evidence: %v", err)
		}
	}
	f.Logf("evidence is in %s", dir)
}

// read reads a file as a process in the node's namespace would.
func (n *Node) read(path string) (text []byte, err error) {
	n.NS.Do(n, func() { text, err = os.ReadFile("/proc/thread-self" + path[len("/proc"):]) })
	return text, err
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
