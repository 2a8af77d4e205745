package script_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/status"
	"exnet/test/ds"
	"exnet/test/ds/script"
)

// Options that lanes do not do, with a value: they keep a connection on TCP. The
// names are those of ccode/sockets.c.
var unlaned = map[string]string{
	"timestamping": "24", "pacing": "100000000",
	"filter": "1", "peekoff": "0", "ulp": "tls", "fastopenconnect": "1",
	"recverr": "1", "repair": "0",
}

// Options that are done on lanes, or ignored, or the kernel's own business.
var laned = map[string]string{
	"nodelay": "1", "cork": "0", "rcvlowat": "1", "keepalive": "1", "rcvbuf": "100000", "sndbuf": "100000",
	"linger": "-1", "rcvtimeo": "5000", "sndtimeo": "5000", "priority": "1", "quickack": "1", "usertimeout": "5000",
	"notsentlowat": "100000", "tos": "16", "inq": "1", "timestamp": "1", "timestampns": "1",
	"zerocopy": "1", "oobinline": "1",
}

// OPT-1: set before a connection is busy, and while it is on a lane.
func TestOptionsThatStayOnTCP(t *testing.T) {
	library := ds.Library(t)
	for option, value := range unlaned {
		for name, text := range map[string]string{
			"before": "script x\nl=listen\nopen\na set c OPTION VALUE\nwarm\n",
			"after":  "script x\nopen\nwarm\na write c 500\nb write d 700\na set c OPTION VALUE\nb read d 500\na read c 700\n",
		} {
			t.Run(option+" "+name, func(t *testing.T) {
				t.Parallel()
				text := strings.NewReplacer("OPTION", option, "VALUE", value, "l=listen\n", "").Replace(text)
				stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
				s := outcome(t, stage, parse(t, text))[script.A]
				if s.State != status.TCP || s.Reason.String() != "option" {
					t.Errorf("%v, reason %q: want TCP, option", s.State, s.Reason)
				}
			})
		}
	}
}

func TestOptionsOnLanes(t *testing.T) {
	library := ds.Library(t)
	for option, value := range laned {
		t.Run(option, func(t *testing.T) {
			t.Parallel()
			text := fmt.Sprintf("script x\nopen\na set c %s %s\nwarm\na set c %[1]s %[2]s\na write c 500\nb write d 700\nb read d 500\na read c 700\n", option, value)
			stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
			if s := outcome(t, stage, parse(t, text))[script.A]; s.State != status.Lane {
				t.Errorf("%v, reason %q: want a lane", s.State, s.Reason)
			}
		})
	}
}

// stamped waits until the kernel notes when packets come, for which nobody waits who asks it
// to, and keeps it doing so until the test has ended.
func stamped(t *testing.T) {
	t.Helper()
	c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	var set error
	raw.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_TIMESTAMPING, unix.SOF_TIMESTAMPING_RX_SOFTWARE|unix.SOF_TIMESTAMPING_SOFTWARE)
	})
	if set != nil {
		t.Fatal(set)
	}
	c.SetDeadline(time.Now().Add(time.Minute))
	control := make([]byte, 256)
	for times := 0; times == 0; { // unlike SO_TIMESTAMP it gives none of the time when they are read
		if _, err := c.WriteTo([]byte{1}, c.LocalAddr()); err != nil {
			t.Fatal(err)
		}
		if _, times, _, _, err = c.ReadMsgUDP(make([]byte, 1), control); err != nil {
			t.Fatal(err)
		}
	}
}

// Who asks for the times of what came, and makes room for them, has them from the kernel.
func TestTimesAreTheKernels(t *testing.T) {
	library := ds.Library(t)
	stamped(t)
	for how, want := range map[string]status.State{"recvmsg d 700 - 0": status.Lane, "recvmsg d 700 -": status.TCP, "recvmmsg d 700 -": status.TCP} {
		text := "script x\nopen\nb set d timestamp 1\nwarm\na write c 700\nb await d 700\nb " + how + "\n"
		stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
		if s := outcome(t, stage, parse(t, text))[script.B]; s.State != want {
			t.Errorf("%s: %v, reason %q: want %v", how, s.State, s.Reason, want)
		}
	}
}

// So do those that accept from a listener of which the library was not told what it has.
func TestTimesOfGivenListener(t *testing.T) {
	stamped(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, ds.Build(t, "given", nil, "given.c"))
	cmd.WaitDelay = time.Second
	cmd.Env = append(os.Environ(), ds.Preload(ds.Library(t), ds.Fabric(t), "EXN_DS_VERBOSE=1")...)
	text, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(text), " has lane ") {
		t.Errorf("%v, want times, and a lane before:\n%s", err, text)
	}
}

// What a listener has, those that it accepts inherit.
func TestOptionsOfListeners(t *testing.T) {
	library := ds.Library(t)
	for _, v := range []struct {
		option string
		state  status.State
		reason string
	}{{"peekoff 0", status.TCP, "option"}, {"fastopen 5", status.Lane, "none"}, {"inq 1", status.Lane, "none"}, {"timestamp 1", status.Lane, "none"}} {
		text := "script x\nb l=listen 4\nb set l " + v.option + "\na c=socket 4\na connect c 4 $port\nb d=accept l\nwarm\n"
		stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
		if s := outcome(t, stage, parse(t, text))[script.B]; s.State != v.state || s.Reason.String() != v.reason {
			t.Errorf("%s: %v, reason %q: want %v, %s", v.option, s.State, s.Reason, v.state, v.reason)
		}
	}
}

// Every option that a test above sets has a line in the table of the docs.
func TestOptionsAreDocumented(t *testing.T) {
	_, file, _, _ := runtime.Caller(0)
	text, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "..", "..", "docs", "options.md"))
	if err != nil {
		t.Fatal(err)
	}
	source, err := os.ReadFile(filepath.Join(filepath.Dir(file), "..", "ccode", "sockets.c"))
	if err != nil {
		t.Fatal(err)
	}
	row := func(constant string) string {
		for line := range strings.Lines(string(text)) {
			if strings.HasPrefix(line, "|") && strings.Contains(line, "`"+constant+"`") {
				return line
			}
		}
		return ""
	}
	for _, m := range regexp.MustCompile(`\{"(\w+)", \w+, (\w+), \w+_option\}`).FindAllStringSubmatch(string(source), -1) {
		option, constant := m[1], m[2]
		line := row(constant)
		if line == "" {
			t.Errorf("docs/options.md has no row with `%s`", constant)
			continue
		}
		_, stays := unlaned[option]
		if falls := strings.Contains(line, "falls back"); falls != stays {
			t.Errorf("%s: the test says that it falls back: %v, the table: %s", constant, stays, line)
		}
	}
}

// Processes that move bytes past the library keep TCP.
func TestPastTheLibrary(t *testing.T) {
	library := ds.Library(t)
	for name, v := range map[string]struct{ before, reason string }{
		"io_uring": {"uring", "io_uring"},
		"mlockall": {"lockall", "memory"},
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(name+" "+when, func(t *testing.T) {
				text := "script x\na " + v.before + "\nopen\nwarm\n"
				if when == "after" {
					text = "script x\nopen\nwarm\na write c 500\nb write d 700\na " + v.before + "\na read c 700\nb read d 500\n"
				}
				stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t))}
				if s := outcome(t, stage, parse(t, text))[script.A]; s.State != status.TCP || s.Reason.String() != v.reason {
					t.Errorf("%v, reason %q: want TCP, %s", s.State, s.Reason, v.reason)
				}
			})
		}
	}
}

// Where lanes are required, a connection that gets none ends, and connecting fails
// where none can be had.
func TestRequired(t *testing.T) {
	library := ds.Library(t)
	const require = "EXN_DS_REQUIRE=1"
	t.Run("met", func(t *testing.T) {
		stage := script.Stage{Player: player(t), Env: ds.Preload(library, ds.Fabric(t), require)}
		upgrades(t, outcome(t, stage, parse(t, conversation)))
	})
	t.Run("plain peer", func(t *testing.T) {
		env := map[script.End][]string{script.A: ds.Preload(library, ds.Fabric(t), require)}
		// It is given up after some offers, each of which counts for 1 s.
		again := "b&1 pong d 600 600\na ping c 600 600\nb join 1\na sleep 1100\n"
		s := parse(t, "script x\nopen\n"+strings.Repeat(again, 5)+"a write c 1\n")
		log := play(t, script.Stage{Player: player(t), EnvOf: env}, s)
		if last := log[len(log)-3].Outcome; !strings.Contains(last, "ECONNRESET") && !strings.Contains(last, "ENOTCONN") && !strings.Contains(last, "EPIPE") {
			t.Errorf("the connection goes on: %s", log)
		}
	})
	t.Run("waits of its own", func(t *testing.T) {
		env := map[script.End][]string{script.B: ds.Preload(library, ds.Fabric(t), require, "EXN_DS_CALLS=1")}
		s := parse(t, "script x\nopen\nb nonblock d 1\nb e=epoll\nb ctl e add d in 7\n"+strings.Repeat("a write c 10\nb ownwait e 400\nb read d 10\n", 70)+"a write c 1\n")
		log := play(t, script.Stage{Player: player(t), EnvOf: env}, s)
		if last := log[len(log)-3].Outcome; !strings.Contains(last, "ECONNRESET") && !strings.Contains(last, "EPIPE") {
			t.Errorf("the connection goes on: %v", log[len(log)-3])
		}
	})
	t.Run("no directory", func(t *testing.T) {
		env := map[script.End][]string{script.A: ds.Preload(library, "/proc/exn", require)}
		s := parse(t, "script x\nb l=listen 4\na c=socket 4\na connect c 4 $port\n")
		log := play(t, script.Stage{Player: player(t), EnvOf: env}, s)
		if got := log[2].Outcome; !strings.HasPrefix(got, "ECONNREFUSED") {
			t.Errorf("connect gives %s", got)
		}
	})
}
