package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"exnet/exn/capture"
	"exnet/test/netns"
)

// pair brings two interfaces up on one fabric.
func pair(t *testing.T) (dir string, a, b *netns.NetNS) {
	a, b, dir = netns.New(t), netns.New(t), newFabric(t)
	up(t, a, dir, "--node", "7", "--addr", "10.2.0.7/24")
	up(t, b, dir, "--node", "3", "--addr", "10.2.0.3/24")
	return dir, a, b
}

// chatter sends datagrams of two sizes from a to b until the test ends.
func chatter(t *testing.T, a, b *netns.NetNS) {
	t.Helper()
	var in net.PacketConn
	var out net.Conn
	var err error
	b.Do(t, func() { in, err = net.ListenPacket("udp", "10.2.0.3:5000") })
	if err != nil {
		t.Fatal(err)
	}
	a.Do(t, func() { out, err = net.Dial("udp", "10.2.0.3:5000") })
	if err != nil {
		t.Fatal(err)
	}
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		buf := make([]byte, 10000)
		for n := 0; ; n++ {
			if _, err := out.Write(buf[:100+n%2*5000]); err != nil {
				return
			}
			if _, _, err := in.ReadFrom(buf); err != nil {
				return
			}
			select {
			case <-stop:
				return
			default:
			}
		}
	}()
	t.Cleanup(func() { close(stop); in.Close(); out.Close(); <-over })
}

func TestCapture(t *testing.T) {
	dir, a, b := pair(t)
	chatter(t, a, b)
	code, out, errs := call(t, plain, "capture", "--fabric", dir, "--node", "7", "-c", "2", "rendezvous", "and", "(port 5000 or arp)")
	line := `(?m)^\d\d:\d\d:\d\d\.\d{6} 10\.2\.0\.7:\d+ > 10\.2\.0\.3:5000 UDP, 5142 bytes; out 7->3 rendezvous RMA( csum=34\+6)?$`
	if code != exitDone || len(regexp.MustCompile(line).FindAllString(out, -1)) != 2 {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	if !strings.Contains(errs, "capturing on exn0, node 7") || !strings.Contains(errs, "2 frames captured, ") {
		t.Errorf("standard error is %q", errs)
	}

	file := filepath.Join(t.TempDir(), "x.pcapng")
	if code, out, errs := call(t, plain, "capture", "--fabric", dir, "--node", "3", "-w", file, "-c", "3", "-s", "60", "in"); code != exitDone || out != "" {
		t.Errorf("exit code %d, %s%s", code, out, errs)
	}
	written, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	r, frames := capture.NewReader(bytes.NewReader(written)), 0
	for {
		b, err := r.Next()
		if err != nil {
			break
		}
		if f := b.Frame; f != nil {
			if frames++; len(f.Data) > 60 || !strings.HasPrefix(f.Comment, "in 7->3 ") {
				t.Errorf("%d bytes of a frame, %q", len(f.Data), f.Comment)
			}
		}
	}
	if frames != 3 {
		t.Errorf("%d frames in the file", frames)
	}
}

// Interrupted, a capture ends in order, and its file with a whole block; when the
// daemon ends, so does the capture.
func TestCaptureEnds(t *testing.T) {
	a, dir := netns.New(t), newFabric(t)
	daemon, _ := up(t, a, dir, "--addr", "10.2.0.7/24")
	endCapture(t, dir, "interrupted", func(p *process) { p.Process.Signal(syscall.SIGINT) })
	endCapture(t, dir, "without daemon", func(*process) { daemon.end(syscall.SIGTERM) })
}

func endCapture(t *testing.T, dir, name string, end func(*process)) {
	t.Helper()
	p := start(t, "capture", "--fabric", dir, "-w", "-")
	r := capture.NewReader(p.out)
	for range 2 { // what a stream starts with
		if _, err := r.Next(); err != nil {
			t.Fatalf("%s: %v; %s", name, err, p.log.String())
		}
	}
	end(p)
	var err error
	for err == nil { // what the kernel has sent by itself may be in between
		_, err = r.Next()
	}
	if strings.Contains(err.Error(), "within") {
		t.Errorf("%s: the stream ended with %v", name, err)
	}
	if code := p.wait(); code != exitDone {
		t.Errorf("%s: exit code %d: %s", name, code, p.log.String())
	}
}

func TestCaptureRefuses(t *testing.T) {
	dir := newFabric(t)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"fly":        {exitUsage, `unknown word "fly"`},
		"--count=-1": {exitUsage, "--count"},
		"--snap=-1":  {exitUsage, "want 0"},
		"host 1.2.3": {exitUsage, "is not an IP address"},
		"tcp":        {exitFailed, "no node has attached"},
	} {
		code, out, errs := call(t, plain, append([]string{"capture", "--fabric", dir}, strings.Fields(args)...)...)
		if code != want.code || !strings.Contains(errs, want.says) {
			t.Errorf("%s: exit code %d, %s%s", args, code, out, errs)
		}
	}
}
