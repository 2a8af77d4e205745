package gopeer_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets"
	"exnet/test/ds"
)

// byteOf is byte number at of what the server (0) or the client (1) writes; inherited.c.
func byteOf(who, at uint64) byte { return byte((at*0x9e3779b97f4a7c15 + who) >> 53) }

// A Go program whose peer starts programs that inherit the connection loses nothing, and the peer is
// on its lane between them.
func TestPeerStartsPrograms(t *testing.T) {
	program, library := ds.Build(t, "inherited", nil, "inherited.c"), ds.Library(t)
	back := 0
	for seed := range ds.Seeds(t, 3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			fabric := ds.Fabric(t)
			lc := directsockets.ListenConfig{Lanes: directsockets.Options{Fabric: fabric}}
			l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			port := netip.MustParseAddrPort(l.Addr().String()).Port()
			order := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, port))

			report, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer report.Close()
			var now unix.Timespec
			if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
				t.Fatal(err)
			}
			end := time.Now().Add(time.Second)
			cmd := exec.CommandContext(t.Context(), program, fmt.Sprint(seed), "client", fmt.Sprint(now.Nano()+int64(time.Second)), fmt.Sprint(order))
			cmd.Env = append(os.Environ(), ds.Preload(library, fabric, "EXN_DS_VERBOSE=1")...)
			cmd.ExtraFiles = make([]*os.File, 98)
			cmd.ExtraFiles[97] = w // 100
			var said strings.Builder
			cmd.Stderr = &said
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			w.Close()
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			went := make(chan uint64, 1)
			go func() {
				at, err := writeUntil(c, end, rand.New(rand.NewPCG(seed, 1)))
				if err != nil {
					t.Error(err)
				}
				went <- at
			}()
			came, err := readToEnd(c)
			if err != nil {
				t.Error(err)
			}
			var counts [2]uint64
			if err := errors.Join(binary.Read(report, binary.NativeEndian, &counts), cmd.Wait()); err != nil {
				t.Fatalf("%v\n%s", err, said.String())
			}
			if sent := <-went; counts[0] != came || counts[1] != sent {
				t.Errorf("%d of %d bytes came, and %d of %d", came, counts[0], counts[1], sent)
			}
			back += strings.Count(said.String(), " has lane ") - 1
		})
	}
	if back <= 0 && !ds.Sampled() {
		t.Error("the peer was never back on its lane")
	}
}

func writeUntil(c io.Writer, end time.Time, r *rand.Rand) (at uint64, err error) {
	for b := make([]byte, 1<<17); time.Now().Before(end); {
		part := b[:1+r.IntN([]int{500, len(b)}[r.IntN(2)])]
		for i := range part {
			part[i] = byteOf(0, at+uint64(i))
		}
		if _, err := c.Write(part); err != nil {
			return at, err
		}
		at += uint64(len(part))
	}
	return at, c.(interface{ CloseWrite() error }).CloseWrite()
}

func readToEnd(c io.Reader) (at uint64, err error) {
	for b := make([]byte, 1<<16); ; {
		n, err := c.Read(b)
		for i, got := range b[:n] {
			if got != byteOf(1, at+uint64(i)) {
				return at, fmt.Errorf("byte %d is wrong", at+uint64(i))
			}
		}
		at += uint64(n)
		if err == io.EOF {
			return at, nil
		}
		if err != nil {
			return at, err
		}
	}
}
