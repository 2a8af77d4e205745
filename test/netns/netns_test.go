package netns

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"exnet/test/leak"
)

func TestMain(m *testing.M) { leak.Main(m) }

// links returns the names of the interfaces that the calling thread sees.
func links(t *testing.T) []string {
	t.Helper()
	var names []string
	all, err := net.Interfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range all {
		names = append(names, i.Name)
	}
	slices.Sort(names)
	return names
}

func TestVethCarriesBothFamilies(t *testing.T) {
	for name, host := range map[string][2]string{
		"IPv4": {"10.1.0.1", "10.1.0.2"},
		"IPv6": {"fd00::1", "fd00::2"},
	} {
		t.Run(name, func(t *testing.T) {
			outside := links(t)
			a, b := New(t), New(t)
			const bits = "/30" // enough for both, in either family
			Veth(t, End{NS: a, Link: "left", MTU: 9000, Addr: []string{host[0] + bits}},
				End{NS: b, Link: "right", MTU: 9000, Addr: []string{host[1] + bits}})
			if now := links(t); !slices.Equal(now, outside) {
				t.Errorf("interfaces outside changed from %q to %q", outside, now)
			}

			var ln net.Listener
			a.Do(t, func() {
				var err error
				if ln, err = net.Listen("tcp", net.JoinHostPort(host[0], "0")); err != nil {
					t.Fatal(err)
				}
			})
			defer ln.Close()
			b.Do(t, func() {
				if got := links(t); !slices.Equal(got, []string{"lo", "right"}) {
					t.Errorf("interfaces inside: %q", got)
				}
				if i, err := net.InterfaceByName("right"); err != nil || i.MTU != 9000 {
					t.Errorf("right: %+v, %v, want MTU 9000", i, err)
				}
				conn, err := net.Dial("tcp", ln.Addr().String())
				if err != nil {
					t.Fatal(err)
				}
				conn.Close()
			})
			if ln, err := net.Listen("tcp", net.JoinHostPort(host[0], "0")); err == nil {
				ln.Close()
				t.Error("the address can be used outside too")
			}
		})
	}
}

func TestStart(t *testing.T) {
	ns := New(t)
	var out bytes.Buffer
	cmd := exec.Command("cat", "/proc/net/dev")
	cmd.Stdout = &out
	if err := ns.Start(cmd); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(out.String(), ":"); n != 1 || !strings.Contains(out.String(), "lo:") {
		t.Errorf("a command sees these interfaces, want only lo:\n%s", &out)
	}
}

// hold makes a copy of this test binary hold a namespace until it is killed.
const hold = "EXNET_TEST_HOLD"

func TestNothingSurvivesAKill(t *testing.T) {
	ns := New(t)
	if os.Getenv(hold) != "" {
		sleeper := exec.Command("sleep", "infinity")
		sleeper.Stdout = os.Stdout
		if err := ns.Start(sleeper); err != nil {
			t.Fatal(err)
		}
		fmt.Println("holding")
		sleeper.Wait()
		return
	}

	// The pipe ends when all writers are gone.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	holder := exec.Command(os.Args[0], "-test.run=^TestNothingSurvivesAKill$")
	holder.Env = append(os.Environ(), hold+"=1")
	holder.Stdout = w
	err = holder.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(r).ReadString('\n'); err != nil {
		t.Error(err)
	}
	holder.Process.Kill()
	holder.Wait()
	r.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.Copy(io.Discard, r); err != nil {
		t.Errorf("a process started in the namespace survived: %v", err)
	}
}

func TestDoReturnsHome(t *testing.T) {
	ns := New(t)
	identity := func() string {
		id, err := os.Readlink("/proc/thread-self/ns/net")
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	home := identity()
	for name, leave := range map[string]func(){
		"return":  func() {},
		"panic":   func() { panic("on purpose") },
		"nesting": func() { New(t).Do(t, func() {}) },
	} {
		func() {
			defer func() { _ = recover() }()
			ns.Do(t, func() {
				if identity() == home {
					t.Errorf("%s: Do did not leave", name)
				}
				leave()
			})
		}()
		if identity() != home {
			t.Fatalf("%s: Do did not return", name)
		}
	}
}

func TestNamespaceEndsWithTest(t *testing.T) {
	var path string
	t.Run("user", func(t *testing.T) {
		path = New(t).String()
		if target, err := os.Readlink(path); err != nil || !strings.HasPrefix(target, "net:") {
			t.Errorf("%s is %q, %v, want a network namespace", path, target, err)
		}
	})
	if target, _ := os.Readlink(path); strings.HasPrefix(target, "net:") {
		t.Errorf("%s still is %s", path, target)
	}
}
