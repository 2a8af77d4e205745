package apps_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"exnet/directsockets/home"
	"exnet/test/built"
	"exnet/test/debroot"
	"exnet/test/ds"
	"exnet/test/netns"
)

// Where the kernel translates an address the two ends find each other if they are told, of late and by somebody whom they
// trust, how the other sees the connection. Else they are told why they stay on TCP.
func TestTranslatedAddress(t *testing.T) {
	library, tun := ds.Library(t), built.Path(t, "exn-tun")
	pumps := map[string]string{"C": built.Path(t, "pump"), "Go": built.Path(t, "gopump")}
	const ports = 12
	ns := translated(t, ports)
	next := 0
	for _, c := range []struct {
		name   string
		told   bool // how the other sees it
		late   bool // that was long ago
		anyMay bool // say it
		few    bool // calls are made, so that the first offer has to be the one
		lane   bool
	}{
		{name: "nobody tells"},
		{name: "told", told: true, lane: true},
		{name: "told at the first offer", told: true, few: true, lane: true},
		{name: "told long ago", told: true, late: true},
		{name: "anybody may tell", told: true, anyMay: true},
	} {
		for language, pump := range pumps {
			i := next
			next++
			t.Run(c.name+"/"+language, func(t *testing.T) {
				t.Parallel()
				fabric := groups(t)
				if c.told {
					tell(t, fabric, c.late, func(offers []home.View) (said []pair) {
						for _, v := range offers {
							said = append(said, halves(client(v, i), i, client(v, i), i))
						}
						return said
					})
				}
				if c.anyMay {
					if err := os.Chmod(filepath.Join(fabric, "addresses"), 0o777); err != nil {
						t.Fatal(err)
					}
				}
				settings := []string{"EXN_DS_VERBOSE=1"}
				args := []string{"pingpong", "127.0.0.1", strconv.Itoa(dialled + i), "2"}
				if c.few {
					settings = append(settings, "EXN_DS_CALLS=2")
					args = append(args[:3], "1", "rate=20")
				}
				env := append(os.Environ(), ds.Preload(library, fabric, append([]string{"EXN_PEERS=group"}, settings...)...)...)
				if language == "Go" {
					env = append(append(os.Environ(), "EXN_FABRIC="+fabric, "EXN_PEERS=group"), settings...)
					args = append(args, "either")
				}
				log, end := serve(t, ns, env, pump, strconv.Itoa(listening+i))
				client := exec.CommandContext(t.Context(), pump, args...)
				client.Env = env
				text, err := output(ns, client)
				if err != nil {
					t.Errorf("pingpong: %v: %.1000s", err, text)
				}
				end()
				want := "stays on TCP: nat"
				if c.lane {
					want = " has lane "
				}
				for who, said := range map[string]string{"client": text, "server": log.String()} {
					if !strings.Contains(said, want) {
						t.Errorf("the %s does not say %q:\n%.1000s", who, want, said)
					}
				}
			})
		}
	}
	t.Run("check", func(t *testing.T) {
		const last = ports - 1
		fabric := ds.Fabric(t)
		_, end := serve(t, ns, append(os.Environ(), ds.Preload(library, fabric)...), pumps["C"], strconv.Itoa(listening+last))
		defer end()
		check, _ := output(ns, exec.CommandContext(t.Context(), tun, "check", "--fabric", fabric, loopback(dialled+last).String()))
		if !strings.Contains(check, "nat: the other end is "+loopback(listening+last).String()) || !strings.Contains(check, "exn-tun bridge") {
			t.Errorf("check says %s", check)
		}
	})
}

// Who is told of another connection's end finds out by what both have carried. It gets no byte of that, and its lane
// when it is told better.
func TestToldOfAnother(t *testing.T) {
	library := ds.Library(t)
	ns := translated(t, 4)
	first := 0 // of the two connections
	for language, pump := range map[string]string{"C": built.Path(t, "pump"), "Go": built.Path(t, "gopump")} {
		i := first
		first += 2
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			fabric := groups(t)
			clients, since := map[int]home.View{}, time.Time{}
			tell(t, fabric, false, func(offers []home.View) []pair {
				for _, v := range offers {
					for k := i; k < i+2; k++ {
						if v.Local == loopback(listening+k) || v.Remote == loopback(dialled+k) {
							clients[k] = client(v, k)
						}
					}
				}
				if len(clients) < 2 {
					return nil
				}
				if since.IsZero() {
					since = time.Now()
				}
				if time.Since(since) > 100*time.Millisecond {
					return []pair{halves(clients[i], i, clients[i], i), halves(clients[i+1], i+1, clients[i+1], i+1)}
				}
				return []pair{halves(clients[i], i, clients[i+1], i+1), halves(clients[i+1], i+1, clients[i], i)}
			})
			env := append(os.Environ(), ds.Preload(library, fabric, "EXN_PEERS=group", "EXN_DS_VERBOSE=1")...)
			if language == "Go" {
				env = append(os.Environ(), "EXN_FABRIC="+fabric, "EXN_PEERS=group", "EXN_DS_VERBOSE=1")
			}
			var logs [2]*bytes.Buffer
			var ends [2]func()
			for k := range logs { // before the clients, so that these make their offers at the same time
				logs[k], ends[k] = serve(t, ns, env, pump, strconv.Itoa(listening+i+k))
			}
			var both sync.WaitGroup
			for k, size := range []string{"size=64", "size=200"} {
				both.Go(func() {
					args := []string{"pingpong", "127.0.0.1", strconv.Itoa(dialled + i + k), "4", size, "check"}
					if language == "Go" {
						args = append(args, "either")
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // on the wrong lane they wait for good
					defer cancel()
					client := exec.CommandContext(ctx, pump, args...)
					client.Env = env
					text, err := output(ns, client)
					ends[k]()
					if said := logs[k].String(); err != nil || !strings.Contains(text, " has lane ") || !strings.Contains(said, " has lane ") {
						t.Errorf("%v: the client says\n%.1000s\nthe server\n%.1000s", err, text, said)
					}
				})
			}
			both.Wait()
		})
	}
}

// Connections to the ports from dialled on arrive at those from listening on.
const dialled, listening = 7000, 7100

// translated makes a network namespace with so many of them.
func translated(t *testing.T, ports int) *netns.NetNS {
	t.Helper()
	root, ns := debroot.Need(t, "nftables"), netns.New(t)
	rules := "add table ip nat; add chain ip nat out { type nat hook output priority -100; }; "
	for i := range ports {
		rules += fmt.Sprintf("add rule ip nat out tcp dport %d redirect to :%d; ", dialled+i, listening+i)
	}
	if text, err := output(ns, root.Command(t.Context(), "nft", rules)); err != nil {
		t.Skipf("no translation of addresses here: %v: %s", err, text)
	}
	return ns
}

// groups is a fabric directory of a group's, for programs with EXN_PEERS=group: without a board
// each end asks the kernel.
func groups(t *testing.T) string {
	t.Helper()
	fabric := ds.Fabric(t)
	if err := os.Chmod(fabric, 0o2770); err != nil {
		t.Fatal(err)
	}
	return fabric
}

func loopback(port int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(port))
}

// A pair of views is said to be of one connection.
type pair struct{ client, server home.View }

// client gives the client's address, and where it is, of an offer for the i-th port.
func client(v home.View, i int) (at home.View) {
	at = home.View{Net: v.Net, Local: v.Local}
	if v.Local == loopback(listening+i) {
		at.Local = v.Remote
	}
	return at
}

// halves are a client of one port, and the server of a client of another.
func halves(client home.View, dials int, served home.View, listens int) pair {
	client.Remote = loopback(dialled + dials)
	return pair{client, home.View{Net: served.Net, Local: loopback(listening + listens), Remote: served.Local}}
}

// tell answers offers as exn-tun bridge does.
func tell(t *testing.T, fabric string, late bool, know func(offers []home.View) []pair) {
	t.Helper()
	said, err := home.Translate(fabric)
	if err != nil {
		t.Fatal(err)
	}
	say := func(from, to home.View) error {
		made := filepath.Join(said.Dir(), "made")
		if err := os.Symlink(to.String(), made); err != nil {
			return err
		}
		if late {
			long := unix.Timespec{Sec: time.Now().Unix() - 5}
			if err := unix.UtimesNanoAt(unix.AT_FDCWD, made, []unix.Timespec{long, long}, unix.AT_SYMLINK_NOFOLLOW); err != nil {
				return err
			}
		}
		return os.Rename(made, filepath.Join(said.Dir(), "t-"+from.String()))
	}
	var over sync.WaitGroup
	stop := make(chan struct{})
	over.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Millisecond):
			}
			offers, _ := filepath.Glob(filepath.Join(fabric, "ds", "o-*")) // the pattern is good
			var views []home.View
			for _, o := range offers {
				v, err := home.ParseView(strings.TrimPrefix(filepath.Base(o), "o-"))
				if err != nil {
					t.Error(err)
					return
				}
				views = append(views, v)
			}
			for _, p := range know(views) {
				if err := errors.Join(say(p.client, p.server), say(p.server, p.client)); err != nil {
					t.Error(err)
					return
				}
			}
		}
	})
	t.Cleanup(func() {
		close(stop)
		over.Wait()
	})
}

// serve starts a pump that listening in a namespace; end ends it.
func serve(t *testing.T, ns *netns.NetNS, env []string, pump, port string) (log *bytes.Buffer, end func()) {
	t.Helper()
	server := exec.CommandContext(t.Context(), pump, "serve", "127.0.0.1", port)
	server.Env = env
	log = new(bytes.Buffer)
	server.Stderr = log
	ready, err := server.StdoutPipe()
	if err == nil {
		err = ns.Start(server)
	}
	if err == nil {
		_, err = ready.Read(make([]byte, 64))
	}
	if err != nil {
		t.Fatal(err)
	}
	return log, func() {
		server.Process.Kill()
		server.Wait()
	}
}

// output runs a command in a namespace.
func output(ns *netns.NetNS, cmd *exec.Cmd) (string, error) {
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	if err := ns.Start(cmd); err != nil {
		return "", err
	}
	err := cmd.Wait()
	return text.String(), err
}
