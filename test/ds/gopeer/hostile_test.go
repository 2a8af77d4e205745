package gopeer_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/test/ds"
)

// TRU-1: a hostile peer can end its own connections and nothing else. The
// clients of ccode/hostile.c, honest and hostile, meet a victim in Go.
func TestHostilePeer(t *testing.T) {
	library, program := ds.Library(t), ds.Build(t, "hostile", nil, "hostile.c")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	var clients, armed int
	for seed := range ds.Seeds(t, 4) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			cmd := exec.CommandContext(ctx, program, fmt.Sprint(seed), self)
			cmd.Env = append(append(os.Environ(), ds.Preload(library, ds.Fabric(t), fmt.Sprintf("EXN_DS_TEST_SEED=%d", seed))...), role+"=victim")
			if seed%2 == 0 {
				cmd.Env = append(cmd.Env, "EXN_DS_ZCOPY=1") // the echo needs a large window
			}
			cmd.WaitDelay = time.Second
			cmd.SysProcAttr = dieWithUs()
			text, err := cmd.CombinedOutput()
			if err != nil {
				t.Fatalf("%v\n%s", err, text)
			}
			var c, a int
			if _, err := fmt.Sscanf(string(text), "%d hostile clients, %d with memory", &c, &a); err != nil {
				t.Errorf("%v in %q", err, text)
			}
			clients, armed = clients+c, armed+a
		})
	}
	if !t.Failed() && armed*2 < clients {
		t.Errorf("only %d of %d hostile clients had memory to lie in", armed, clients)
	}
}

// victim echoes to the honest client, and makes all kinds of calls with the others,
// until their connections are over.
func victim([]string) error {
	b, err := unix.Mmap(200, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	shared := (*struct{ port, over, serving atomic.Int32 })(unsafe.Pointer(&b[0])) // as in hostile.c
	l, err := directsockets.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return err
	}
	shared.port.Store(int32(l.Addr().(*net.TCPAddr).Port))
	go func() {
		for shared.over.Load() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
		l.Close()
	}()
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		shared.serving.Add(1)
		all.Go(func() {
			defer shared.serving.Add(-1)
			defer c.Close()
			suffer(c)
		})
	}
}

func suffer(c net.Conn) {
	kind := make([]byte, 1)
	if _, err := io.ReadFull(c, kind); err != nil {
		return
	}
	if kind[0] == 'h' {
		io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
		return
	}
	greetings, chunk := int64(60), int64(400) // as hostile.c has them
	if kind[0] == 'r' || kind[0] == 'e' {
		greetings *= 5
	}
	b := make([]byte, 1<<16)
	if _, err := io.CopyN(struct{ io.Writer }{c}, c, greetings*chunk); err != nil {
		return
	}
	for {
		deadline := time.Time{} // the hostile client talks, or is killed
		if rand.IntN(4) > 0 {
			deadline = time.Now().Add(time.Duration(rand.IntN(3)) * time.Millisecond)
		}
		n, err := 1+rand.IntN(len(b)), error(nil)
		if rand.IntN(3) == 0 {
			c.SetWriteDeadline(time.Now().Add(time.Duration(rand.IntN(3)) * time.Millisecond))
			_, err = c.Write(b[:n])
		} else {
			c.SetReadDeadline(deadline)
			_, err = c.Read(b[:n])
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
	}
}
