package libfabric

import (
	"net/netip"
	"os"
	"os/exec"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/test/ofi"
)

var providers = map[string]string{"bookworm": "tcp;ofi_rxm", "trixie": "tcp"}

func loaded(t *testing.T) {
	t.Helper()
	if err := Load(""); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, address string) *Endpoint {
	t.Helper()
	loaded(t)
	e, err := Open(Settings{Provider: providers[ofi.Release()], Listen: netip.MustParseAddrPort(address), Receives: 64, Sends: 64})
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func memory(t *testing.T, size int) []byte {
	t.Helper()
	b, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestMessages sends a message, a write and a read between two endpoints.
func TestMessages(t *testing.T) {
	if !ofi.Rerun(t) {
		return
	}
	a, b := open(t, "127.13.0.1:7471"), open(t, "127.13.0.2:7471")
	defer a.Close()
	defer b.Close()
	t.Logf("%+v", a.Traits)
	buf := memory(t, 1<<16)
	if err := b.Recv(buf[:4096], Region{}, 7); err != nil {
		t.Fatal(err)
	}
	to, err := a.Insert(netip.MustParseAddrPort("127.13.0.2:7471"))
	if err != nil {
		t.Fatal(err)
	}
	copy(buf[4096:], "hello")
	refused := 0
	came := map[*Endpoint][]Event{}
	progress := func() {
		for _, e := range []*Endpoint{a, b} {
			var events [8]Event
			came[e] = append(came[e], events[:e.Poll(events[:])]...)
		}
	}
	await := func(what string, at *Endpoint) (first Event) {
		t.Helper()
		for end := time.Now().Add(time.Minute); len(came[at]) == 0; progress() {
			if time.Now().After(end) {
				t.Fatalf("no event: %s", what)
			}
		}
		first, came[at] = came[at][0], came[at][1:]
		return first
	}
	for err = ErrAgain; err == ErrAgain; refused++ {
		err = a.Send(to, buf[4096:4101], Region{}, 3)
		progress()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("refused %d times while connecting", refused)
	if got := await("receive", b); got.Context != 7 || got.Length != 5 || got.Errno != 0 || string(buf[:5]) != "hello" {
		t.Errorf("received %+v, %q", got, buf[:5])
	}
	if got := await("send", a); got.Context != 3 || got.Errno != 0 {
		t.Errorf("sent %+v", got)
	}
	r, err := b.Register(buf[8192:16384], true, true, 0x123456789abc)
	if err != nil {
		t.Fatal(err)
	}
	copy(buf[20000:], "written")
	if err := a.Write(to, buf[20000:20007], Region{}, r.Base+100, r.Key, 9); err != nil {
		t.Fatal(err)
	}
	if got := await("write", a); got.Context != 9 || got.Errno != 0 || string(buf[8292:8299]) != "written" {
		t.Errorf("wrote %+v, %q", got, buf[8292:8299])
	}
	if err := a.Read(to, buf[30000:30007], Region{}, r.Base+100, r.Key, 10); err != nil {
		t.Fatal(err)
	}
	if got := await("read", a); got.Context != 10 || got.Errno != 0 || string(buf[30000:30007]) != "written" {
		t.Errorf("read %+v, %q", got, buf[30000:30007])
	}
	if err := b.Deregister(r); err != nil {
		t.Error(err)
	}
}

// TestSignals: a nil dereference still panics in a Go program that has loaded
// the library and opened an endpoint.
func TestSignals(t *testing.T) {
	if !ofi.Rerun(t) {
		return
	}
	if os.Getenv("EXN_TEST_PANIC") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestSignals$")
		cmd.Env = append(os.Environ(), "EXN_TEST_PANIC=1")
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "recovered: ") {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	e := open(t, "127.13.0.3:7471")
	defer e.Close()
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() { println("recovered: ", recover() != nil) }()
	var nothing *int
	*nothing = 1
}

// TestOpenErrors: each says what is wrong and what to do.
func TestOpenErrors(t *testing.T) {
	if !ofi.Rerun(t) {
		return
	}
	e := open(t, "127.13.0.4:7471")
	defer e.Close()
	for _, c := range []struct{ provider, address, says string }{
		{providers[ofi.Release()], "127.13.0.4:7471", "listens at 127.13.0.4:7471"},
		{providers[ofi.Release()], "192.0.2.1:7471", "192.0.2.1 is no address of this machine"},
		{"nonsense", "127.13.0.5:7471", "fi_info lists them"},
	} {
		if e, err := Open(Settings{Provider: c.provider, Listen: netip.MustParseAddrPort(c.address), Receives: 64, Sends: 64}); err == nil {
			t.Errorf("%s at %s opened", c.provider, c.address)
			e.Close()
		} else if !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s at %s: %v, want %q", c.provider, c.address, err, c.says)
		}
	}
}

// TestMissing: without the library the error names the package.
func TestMissing(t *testing.T) {
	if os.Getenv("EXN_TEST_MISSING") == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestMissing$", "-test.v")
		cmd.Env = append(os.Environ(), "EXN_TEST_MISSING=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
		return
	}
	if err := Load("/nonexistent/libfabric.so.1"); err == nil || !strings.Contains(err.Error(), "apt install libfabric1") {
		t.Errorf("%v", err)
	}
	if err := Load("libc.so.6"); err == nil || !strings.Contains(err.Error(), "has no fi_getinfo") {
		t.Errorf("a library that is another: %v", err)
	}
}
