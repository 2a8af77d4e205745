package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"exnet/directsockets/launch"
	"exnet/test/built"
)

// start starts a server and returns its port.
func start(t *testing.T, env []string, program string, options ...string) string {
	t.Helper()
	cmd := exec.Command(built.Path(t, program), append([]string{"serve", "127.0.0.1", "0"}, options...)...)
	cmd.Env, cmd.Stderr = env, t.Output()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	port, ready := strings.CutPrefix(strings.TrimSpace(line), "ready ")
	if err != nil || !ready {
		t.Fatalf("%s said %q: %v", program, line, err)
	}
	return port
}

// The programs in C and in Go understand each other, on TCP and on lanes, and their
// results read alike.
func TestBothPumps(t *testing.T) {
	library := built.Path(t, "libextds.so")
	for _, with := range []string{"net", "lanes"} {
		fabric := filepath.Join(t.TempDir(), "fabric")
		env := map[string][]string{"gopump": append(os.Environ(), "EXN_FABRIC="+fabric), "pump": os.Environ()}
		var options []string
		if with == "net" {
			options = []string{"net"}
		} else {
			env["pump"] = launch.Options{Fabric: fabric, Require: true}.Environment(library, os.Environ())
		}
		for _, pair := range [][2]string{{"gopump", "gopump"}, {"gopump", "pump"}, {"pump", "gopump"}} {
			client, server := pair[0], pair[1]
			for _, mode := range []string{"stream", "stream size=131072 memory=1048576", "pingpong", "pingpong split", "connect", "many"} {
				mode, asked, _ := strings.Cut(mode, " ")
				var more [2][]string // C knows nothing of packages
				for i, program := range pair {
					if program == "gopump" {
						more[i] = options
					}
				}
				args := append([]string{mode, "127.0.0.1", start(t, env[server], server, more[1]...), "0.1", "check", "json"}, more[0]...)
				args = append(args, strings.Fields(asked)...)
				crowd := mode == "many"
				if crowd {
					args = append(args, "streams=120")
				}
				if mode == "connect" {
					args = append(args, "rounds=3")
					if with == "lanes" && client == "pump" {
						continue // which requires a lane of each
					}
					if client == "gopump" && with == "lanes" {
						args = append(args, "either")
					}
				}
				cmd := exec.Command(built.Path(t, client), args...)
				cmd.Env, cmd.Stderr = env[client], t.Output()
				cmd.Stdin = strings.NewReader("\n\n\n") // to each step
				out, err := cmd.Output()
				if crowd {
					out = bytes.TrimSuffix(bytes.TrimPrefix(out, []byte("begun\nopened\n")), []byte("done\n"))
				}
				var r result
				if err == nil {
					err = json.Unmarshal(out, &r)
				}
				if err != nil || r.Rate <= 0 || mode == "stream" && r.Bytes == 0 || mode != "stream" && r.Histogram.Count() == 0 {
					t.Errorf("%s, %s to %s, %s: %+v, %v", with, client, server, mode, r, err)
				}
			}
		}
	}
}

// Bytes that are wrong are found: all of a stream, or at the ends of reads.
func TestDiffers(t *testing.T) {
	b := append([]byte(nil), pattern[7:7+100]...)
	if differs(b, 7, true) || differs(b, 7+3*period, false) || !differs(b, 8, false) {
		t.Error("what is right is taken for wrong, or the other way round")
	}
	b[50]++
	if !differs(b, 7, true) || differs(b, 7, false) {
		t.Error("a byte in the middle")
	}
	b[50]--
	for _, at := range []int{0, 15, 84, 99} {
		b[at]++
		if !differs(b, 7, false) {
			t.Errorf("byte %d", at)
		}
		b[at]--
	}
}

func TestBadArguments(t *testing.T) {
	for _, args := range []string{"", "stream", "dance 127.0.0.1 1", "stream 127.0.0.1 1 0", "stream 127.0.0.1 1 1 size=0", "stream 127.0.0.1 1 1 size=99999999", "stream 127.0.0.1 1 1 size=3 memory=7", "pingpong 127.0.0.1 1 1 memory=64", "stream 127.0.0.1 1 1 quickly", "stream 127.0.0.1 1 1 size=x", "connect 127.0.0.1 1 1 rounds=0", "many 127.0.0.1 1 1 pause=-1"} {
		if err := run(strings.Fields(args)); err != errUsage {
			t.Errorf("%q: %v", args, err)
		}
	}
}
