package gopeer_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"exnet/directsockets"
	"exnet/test/ds"
)

// Who waits for several Go programs' connections is told of them in the order in which
// they were written to.
func TestInOrder(t *testing.T) {
	const conns, warm = 24, 100 // inorder.c
	program, fabric := ds.Build(t, "inorder", nil, "inorder.c"), ds.Fabric(t)
	cmd := exec.CommandContext(t.Context(), program, "serve")
	cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), fabric, "EXN_DS_VERBOSE=1")...)
	var log strings.Builder
	cmd.Stderr = &log
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewReader(stdout)
	port, err := said.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dialer := directsockets.Dialer{Lanes: directsockets.Options{Fabric: fabric}}
	var c [conns]net.Conn
	for i := range c {
		if c[i], err = dialer.DialContext(t.Context(), "tcp", net.JoinHostPort("127.0.0.1", strings.TrimSpace(port))); err != nil {
			t.Fatal(err)
		}
		defer c[i].Close()
	}
	b := make([]byte, 1)
	for range warm {
		for _, c := range c {
			if _, err := c.Write(b); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	r := rand.New(rand.NewPCG(1, 1))
	for {
		if next, err := said.ReadByte(); err != nil {
			t.Fatal(err)
		} else if next != 0 {
			said.UnreadByte() // a digit of the last line
			break
		}
		order := bytes.Repeat([]byte{conns}, conns) // no more of them
		n := 2
		if r.IntN(2) == 0 {
			n += r.IntN(conns - 1)
		}
		for i, at := range r.Perm(conns)[:n] {
			order[i] = byte(at)
			if _, err := c[at].Write(b); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := stdin.Write(order); err != nil {
			t.Fatal(err)
		}
	}
	var wrong, beside, rounds int
	if _, err := fmt.Fscan(said, &wrong, &beside, &rounds); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, log.String())
	}
	if wrong > rounds/10 {
		t.Errorf("another order in %d of %d rounds", wrong, rounds)
	}
	if strings.Count(log.String(), " has lane ") < conns && !ds.Sampled() {
		t.Error("not all have lanes")
	}
}
